//! Any text as what people write: lengths, sizes, lists of nodes, scripts, names of files, hours of
//! the week.
//!
//! Whatever can be read stays within its bounds, and what can be written again reads the same.

use tutti_types::Period;
use tutti_wire::history::Ending;
use tutti_wire::host_list::{HostItem, format_host_list, parse_host_list};
use tutti_wire::limits::HOST_LIST_BYTES_MAX;
use tutti_wire::report::Target;
use tutti_wire::{code::Code, pattern, script, units};

/// See the file.
pub fn config(input: &[u8]) {
    assert!(!script::is_script(input) || script::check_start(input).is_ok());
    let _ = script::interpreter(input);
    if let Ok(script) = script::parse(input) {
        let lines = input.split(|byte| *byte == b'\n').count();
        assert!(script.directives.iter().all(|directive| directive.line as usize <= lines));
        assert!(script.problems.iter().all(|problem| problem.line as usize <= lines));
        assert!(script.problems.len().max(script.notes.len()) <= script::PROBLEMS_MAX);
    }
    if pattern::check(input).is_ok() {
        let _ = pattern::names_rank(input);
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    let _ = (units::parse_duration(text), units::parse_count(text), text.parse::<Ending>());
    if let Ok(bytes) = units::parse_bytes(text) {
        let _ = units::format_bytes(bytes);
    }
    if let Ok(period) = text.parse::<Period>() {
        assert_eq!(period.to_string().parse(), Ok(period));
    }
    if let Ok(target) = text.parse::<Target>() {
        assert_eq!(target.to_string().parse(), Ok(target));
    }
    if let Some(code) = Code::parse(text) {
        assert_eq!(Code::parse(&code.to_string()), Some(code));
    }
    if let Ok(items) = parse_host_list(text) {
        let of_item = |item: HostItem| match item {
            HostItem::Names(names) => names,
            HostItem::Set(_) => Vec::new(),
        };
        let names: Vec<String> = items.into_iter().flat_map(of_item).collect();
        let written = format_host_list(names.iter().map(String::as_str));
        // Many names that have little in common are longer than what was typed for them.
        let is_readable = written.len() > HOST_LIST_BYTES_MAX || parse_host_list(&written).is_ok();
        assert!(names.is_empty() || is_readable, "{written}");
    }
    let _ = Code::Other.mark(text);
}
