//! Lists of nodes, folded and unfolded: `a[1-3]` is `a1,a2,a3`.

use tutti_wire::host_list::{HostItem, format_host_list, parse_host_list};

/// The names of a list, in its order.
///
/// # Errors
/// If it can't be read.
pub(super) fn unfolded(list: &str) -> Result<Vec<String>, String> {
    let items = parse_host_list(list).map_err(|error| format!("Invalid hostlist: {error}"))?;
    let names = items.into_iter().flat_map(|item| match item {
        HostItem::Names(names) => names,
        HostItem::Set(set) => vec![format!("set:{set}")],
    });
    Ok(names.collect())
}

/// The list of names between commas or blanks, as short as it can be written.
///
/// # Errors
/// If a name can't be read.
pub(super) fn folded(names: &str) -> Result<String, String> {
    let mut all = Vec::new();
    for list in names.split_whitespace() {
        all.extend(unfolded(list)?);
    }
    Ok(format_host_list(all.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::{folded, unfolded};

    #[test]
    fn lists_are_folded_and_unfolded() {
        assert_eq!(unfolded("a[1-3],b").unwrap(), ["a1", "a2", "a3", "b"]);
        assert_eq!(unfolded("n[08-10]").unwrap(), ["n08", "n09", "n10"]);
        assert_eq!(folded("a1,a2,a3 b").unwrap(), "a[1-3],b");
        assert_eq!(folded("n08,n09,n10,n100,m7").unwrap(), "m7,n100,n[08-10]");
        assert!(unfolded("a[1").is_err());
    }
}
