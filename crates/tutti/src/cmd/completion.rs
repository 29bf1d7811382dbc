//! `tutti completion`: the script by which a shell completes verbs and options.

use super::Cli;
use clap::{Arg, Args, Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use tutti_client::output::print;
use tutti_node::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  tutti completion bash                prints the script

Where a shell reads it:
  bash   ~/.local/share/bash-completion/completions/tutti
  zsh    ~/.zfunc/_tutti; ~/.zshrc needs `fpath+=~/.zfunc` before `compinit`
  fish   ~/.config/fish/completions/tutti.fish

Packages install these scripts.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionArgs {
    /// The shell
    shell: Offered,
}

/// Shells whose script is tested.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Offered {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn execute(args: &CompletionArgs) -> anyhow::Result<Exit> {
    print(&script(args.shell))?;
    Ok(Exit::OK)
}

fn script(shell: Offered) -> String {
    let shell = match shell {
        Offered::Bash => Shell::Bash,
        Offered::Zsh => Shell::Zsh,
        Offered::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(&Cli::command()), "tutti", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The command without verbs and options that help hides: `clap_complete` would offer them.
fn visible(command: &Command) -> Command {
    let mut shown = Command::new(lasting(command.get_name())).disable_help_subcommand(true);
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(lasting(version)).propagate_version(true);
    }
    shown = shown.args(command.get_arguments().filter(|it| !it.is_hide_set()).map(lone));
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    shown.subcommands(verbs.map(visible))
}

/// The argument without what it says of others, which may be hidden.
fn lone(argument: &Arg) -> Arg {
    let mut shown = Arg::new(argument.get_id().clone())
        .action(argument.get_action().clone())
        .value_parser(argument.get_value_parser().clone())
        .required(argument.is_required_set())
        .last(argument.is_last_set())
        .trailing_var_arg(argument.is_trailing_var_arg_set())
        .allow_hyphen_values(argument.is_allow_hyphen_values_set())
        // The program of a job and its arguments are completed as a command of their own.
        .value_hint(match argument.is_trailing_var_arg_set() {
            true => ValueHint::CommandWithArguments,
            false => argument.get_value_hint(),
        });
    if let Some(short) = argument.get_short() {
        shown = shown.short(short);
    }
    if let Some(long) = argument.get_long() {
        shown = shown.long(lasting(long));
    }
    if let Some(help) = argument.get_help() {
        shown = shown.help(help.clone());
    }
    if let Some(range) = argument.get_num_args() {
        shown = shown.num_args(range);
    }
    if let Some(names) = argument.get_value_names() {
        shown = shown.value_names(names.to_vec());
    }
    shown
}

/// A name for the rest of the process, as `clap` needs it: the process ends after its one script.
fn lasting(name: &str) -> &'static str {
    name.to_owned().leak()
}

#[cfg(test)]
mod tests {
    use super::{Offered, script};
    use crate::cmd::Cli;
    use clap::{CommandFactory, ValueEnum};

    #[test]
    fn each_shell_completes_the_verbs_that_help_lists() {
        let root = Cli::command();
        for shell in Offered::value_variants() {
            let script = script(*shell);
            let knows = |name: &str| {
                let parts =
                    script.split(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c)));
                parts.into_iter().any(|word| word == name)
            };
            for verb in root.get_subcommands() {
                // Some hidden verbs are words of texts too.
                if !verb.is_hide_set() || ["make-startable", "supervise"].contains(&verb.get_name())
                {
                    assert_eq!(knows(verb.get_name()), !verb.is_hide_set(), "{shell:?}: {verb}");
                }
            }
            assert!(knows("kill-on-bad-exit") || knows("--kill-on-bad-exit"), "{shell:?}");
            assert!(!script.contains("markdown"), "{shell:?} offers a hidden option");
        }
    }
}
