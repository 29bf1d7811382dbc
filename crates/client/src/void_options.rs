//! Options of a job that have no effect under the parameters in force.

use super::connect::dial;
use tutti_node::instance::Instance;
use tutti_wire::local::{JobRequest, Reply, Request};
use tutti_wire::report::ParamReport;

/// Options of a job that have an effect only under some parameters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conditional {
    weights: bool,
    policy_args: bool,
}

impl Conditional {
    /// Those of a request.
    pub(super) fn of(request: &JobRequest) -> Self {
        Self { weights: request.weights.is_some(), policy_args: !request.policy_args.is_empty() }
    }

    /// Says which of them have no effect now. The job is accepted, so a controller that does not
    /// answer is no error.
    pub(super) fn say_void(self, instance: &Instance) {
        if !(self.weights || self.policy_args) {
            return;
        }
        let Ok(mut link) = dial(instance) else { return };
        link.send(&Request::Params);
        if let Ok(Reply::Params { params, .. }) = link.call() {
            self.notes(&params).iter().for_each(|note| say!("tutti: {note}"));
        }
    }

    fn notes(self, params: &[ParamReport]) -> Vec<String> {
        let value = |name: &str| {
            params.iter().find(|it| it.name == name).map_or("", |param| param.value.as_str())
        };
        let (placement, policy) = (value("placement"), value("policy"));
        let mut notes = Vec::new();
        if self.weights && !matches!(placement, "low-load" | "high-load") {
            notes.push(format!(
                "--weights has no effect with placement={placement}; it counts with \
                 placement=low-load and placement=high-load (`tutti params placement`)"
            ));
        }
        if self.policy_args && policy != "external" {
            notes.push(format!(
                "--policy-arg has no effect with policy={policy}; only a policy program of the \
                 site reads it (`tutti params policy_program`)"
            ));
        } else if self.policy_args && value("policy_program") == "none" {
            notes.push(
                "--policy-arg has no effect: there is no policy program that would read it \
                 (`tutti params policy_program`)"
                    .to_owned(),
            );
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_named_only_where_it_has_no_effect() {
        let params = |values: [(&str, &str); 3]| {
            values.map(|(name, value)| ParamReport {
                name: name.into(),
                value: value.into(),
                default: String::new(),
                range: String::new(),
                help: String::new(),
            })
        };
        let notes = |placement, policy, program| {
            let of = [("placement", placement), ("policy", policy), ("policy_program", program)];
            let notes = Conditional { weights: true, policy_args: true }.notes(&params(of));
            notes.join("\n")
        };
        assert_eq!(notes("high-load", "external", "/a"), "");
        assert_eq!(notes("low-load", "external", "/a"), "");
        let said = notes("packed", "gang", "/a");
        assert!(said.contains("--weights has no effect with placement=packed"), "{said}");
        assert!(said.contains("--policy-arg has no effect with policy=gang"), "{said}");
        assert!(notes("spare-cycles", "external", "/a").starts_with("--weights"));
        assert!(notes("high-load", "external", "none").contains("there is no policy program"));
        let none = Conditional::default();
        assert!(none.notes(&params([("placement", "packed"); 3])).is_empty());
    }
}
