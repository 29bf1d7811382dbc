//! Lists of machines from which users may submit jobs: nodes and sets, addresses and masks, host
//! names, netgroups (Jump-StarT paper, section 5.1.1: the list of valid machines).
//!
//! Items have commas between them:
//!
//! - `a[1-8]`, `set:login`: nodes ([`crate::host_list`]);
//! - `10.1.0.0/16`, `10.1.2.3`, `fd00::/8`: the address of the machine;
//! - `login.example.org`, `*.lab`: its host name, where `*` stands for any letters;
//! - `@staff`: a netgroup that it is in.

use crate::host_list::{HostItem, HostListError, parse_host_list};
use crate::limits::{NAME_BYTES_MAX, ORIGINS_BYTES_MAX};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

/// One item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginItem {
    /// Nodes, or a set of them.
    Nodes(HostItem),
    /// An address, or all that begin alike.
    Addresses(Mask),
    /// Host names, in lower case.
    Hosts(String),
    /// A netgroup.
    Netgroup(String),
}

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask {
    address: IpAddr,
    /// How many bits count, from the first on.
    bits: u8,
}

/// Why a list can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// An item of nodes is wrong.
    #[error(transparent)]
    List(#[from] HostListError),
    /// It is no mask.
    #[error("{0:?} is no mask of addresses; write 10.1.0.0/16 or fd00::/8")]
    Mask(String),
    /// The bits behind the mask are not zero.
    #[error("{0:?} has an address beyond its mask; write {1}")]
    Beyond(String, Mask),
    /// It is no pattern of host names.
    #[error("{0:?} is no host name; write letters, digits, '-', '.' and '*', such as *.lab")]
    Host(String),
    /// It is no name of a netgroup.
    #[error("{0:?} is no netgroup; write @NAME")]
    Netgroup(String),
    /// It is too long.
    #[error("a list of machines has at most {ORIGINS_BYTES_MAX} bytes; use sets or netgroups")]
    TooLong,
}

impl core::fmt::Display for Mask {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Mask {
    /// Whether an address is one of them. One of version 4 in the form of version 6 is one of
    /// version 4.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        let (own, other) = (wide(self.address), wide(address));
        own.1 == other.1 && cut(own.0, self.bits, own.1) == cut(other.0, self.bits, own.1)
    }
}

/// The bits of an address, and how many there are.
fn wide(address: IpAddr) -> (u128, u8) {
    match address.to_canonical() {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

/// The first of so many bits.
const fn cut(bits: u128, first: u8, of: u8) -> u128 {
    let last = (of - first) as u32;
    match bits.checked_shr(last) {
        Some(bits) => bits,
        None => 0,
    }
}

/// Reads a list.
///
/// # Errors
/// Names the item that is wrong.
pub fn parse_origins(list: &str) -> Result<Vec<OriginItem>, OriginError> {
    if list.len() > ORIGINS_BYTES_MAX {
        return Err(OriginError::TooLong);
    }
    let mut items = Vec::new();
    for item in split(list) {
        if let Some(name) = item.strip_prefix('@') {
            items.push(netgroup(name)?);
        } else if item.contains('/') || item.parse::<IpAddr>().is_ok() {
            items.push(mask(item)?);
        } else if !item.contains('[') && item.contains(['.', '*']) {
            items.push(host(item)?);
        } else {
            items.extend(parse_host_list(item)?.into_iter().map(OriginItem::Nodes));
        }
    }
    Ok(items)
}

/// Cuts a list at its commas, but for those in brackets.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    list.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
}

fn mask(item: &str) -> Result<OriginItem, OriginError> {
    let wrong = || OriginError::Mask(item.to_owned());
    let (address, bits) = item.split_once('/').map_or((item, None), |(a, b)| (a, Some(b)));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let (all, most) = wide(address);
    let plain = |bits: &&str| bits.len() <= 3 && bits.bytes().all(|byte| byte.is_ascii_digit());
    let bits = match bits {
        None => most,
        Some(bits) => {
            let bits = Some(bits).filter(plain).and_then(|bits| bits.parse().ok());
            bits.filter(|&bits: &u8| bits <= most).ok_or_else(wrong)?
        }
    };
    let first = cut(all, bits, most).checked_shl(u32::from(most - bits)).unwrap_or(0);
    let begins = match u32::try_from(first) {
        Ok(first) if most == 32 => IpAddr::from(first.to_be_bytes()),
        _ => IpAddr::from(first.to_be_bytes()),
    };
    let mask = Mask { address: begins, bits };
    if first != all {
        return Err(OriginError::Beyond(item.to_owned(), mask));
    }
    Ok(OriginItem::Addresses(mask))
}

fn host(item: &str) -> Result<OriginItem, OriginError> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*');
    match item.len() <= NAME_BYTES_MAX && item.chars().all(good) {
        true => Ok(OriginItem::Hosts(item.trim_end_matches('.').to_ascii_lowercase())),
        false => Err(OriginError::Host(item.chars().take(80).collect())),
    }
}

fn netgroup(name: &str) -> Result<OriginItem, OriginError> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(good) {
        true => Ok(OriginItem::Netgroup(name.to_owned())),
        false => Err(OriginError::Netgroup(name.chars().take(80).collect())),
    }
}

/// Whether a host name, in whatever case, is one of a pattern.
#[must_use]
pub fn is_host(pattern: &str, name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = left.find(piece) else { return false };
        left = &left[at + piece.len()..];
    }
    left.len() >= last.len() && left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::{OriginItem, is_host, parse_origins};
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;
    use core::net::IpAddr;
    use proptest::prelude::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn has(list: &str, address: IpAddr) -> bool {
        let items = parse_origins(list).unwrap();
        items.iter().any(|it| matches!(it, OriginItem::Addresses(mask) if mask.contains(address)))
    }

    #[test]
    fn a_list_has_nodes_masks_names_and_netgroups() {
        let items =
            parse_origins("a[1-2,5],set:login,10.1.0.0/16,*.Lab.,login.x.org,@staff").unwrap();
        let shown: Vec<String> = items
            .iter()
            .map(|item| match item {
                OriginItem::Nodes(_) => "nodes".into(),
                OriginItem::Addresses(mask) => mask.to_string(),
                OriginItem::Hosts(pattern) => pattern.clone(),
                OriginItem::Netgroup(name) => alloc::format!("@{name}"),
            })
            .collect();
        assert_eq!(shown, ["nodes", "nodes", "10.1.0.0/16", "*.lab", "login.x.org", "@staff"]);
    }

    #[test]
    fn masks_hold_for_the_bits_that_they_name() {
        assert!(has("10.1.0.0/16", address("10.1.255.7")));
        assert!(!has("10.1.0.0/16", address("10.2.0.1")));
        assert!(has("10.1.2.3", address("10.1.2.3")) && !has("10.1.2.3", address("10.1.2.4")));
        assert!(has("0.0.0.0/0", address("1.2.3.4")) && !has("0.0.0.0/0", address("::1")));
        assert!(has("fd00::/8", address("fd12::1")) && !has("fd00::/8", address("fe80::1")));
        assert!(has("10.0.0.0/8", address("::ffff:10.1.1.1")), "version 4 in the form of 6");
        assert!(has("::/0", address("2001:db8::1")));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (list, says) in [
            ("10.1.0.0/33", "no mask"),
            ("10.1.0.0/", "no mask"),
            ("10.1/16", "no mask"),
            ("10.1.0.1/16", "write 10.1.0.0/16"),
            ("*.l b", "no host name"),
            ("@", "no netgroup"),
            ("@a b", "no netgroup"),
        ] {
            let error = parse_origins(list).unwrap_err().to_string();
            assert!(error.contains(says), "{list}: {error}");
        }
        assert!(parse_origins(&"a".repeat(5000)).is_err());
    }

    #[test]
    fn a_star_stands_for_any_letters() {
        assert!(is_host("*.lab", "n1.LAB.") && is_host("*.lab", "a.b.lab"));
        assert!(!is_host("*.lab", "lab") && !is_host("*.lab", "n1.lab.example.org"));
        assert!(is_host("n*.lab", "n12.lab") && !is_host("n*.lab", "m12.lab"));
        assert!(is_host("a*b*c", "abc") && is_host("a*b*c", "axxbxbc") && !is_host("a*b*c", "acb"));
        assert!(is_host("*", "anything") && is_host("login.x", "login.x"));
        assert!(!is_host("a*a", "a"), "the same letter is not both ends");
    }

    proptest! {
        #[test]
        fn any_list_is_read_or_refused(list in ".{0,60}", bits: u32, many in 0u8..33) {
            drop(parse_origins(&list));
            let mask = u32::MAX.checked_shl(32 - u32::from(many)).unwrap_or(0);
            let begin = IpAddr::from((bits & mask).to_be_bytes());
            let list = alloc::format!("{begin}/{many}");
            prop_assert!(has(&list, IpAddr::from(bits.to_be_bytes())), "{}", list);
        }
    }
}
