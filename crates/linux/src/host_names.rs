//! Host names of addresses, and netgroups, as the system's databases have them.
//!
//! All of this may take as long as a name server takes that does not answer.

use nix::sys::socket::{SockaddrLike, SockaddrStorage};
use std::ffi::{CStr, CString, c_char, c_int};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};

/// The longest host name that the library gives, in bytes (`NI_MAXHOST`).
const NAME_BYTES_MAX: usize = 1025;

/// The library has one place for all that look something up in a netgroup.
static NETGROUPS: Mutex<()> = Mutex::new(());

unsafe extern "C" {
    /// Of the C library; not in the crate `libc`.
    fn innetgr(
        netgroup: *const c_char,
        host: *const c_char,
        user: *const c_char,
        domain: *const c_char,
    ) -> c_int;
}

/// The host name that an address leads to and that leads back to the address. The name alone proves
/// nothing: the owner of the address says what it is, the owner of the name where it leads.
#[must_use]
pub fn confirmed_name(address: IpAddr) -> Option<String> {
    let name = name_of(address)?;
    let back = (name.as_str(), 0).to_socket_addrs().ok()?;
    leads_back(address, back).then_some(name)
}

fn leads_back(address: IpAddr, mut found: impl Iterator<Item = SocketAddr>) -> bool {
    found.any(|it| it.ip().to_canonical() == address.to_canonical())
}

fn name_of(address: IpAddr) -> Option<String> {
    let socket = SockaddrStorage::from(SocketAddr::new(address.to_canonical(), 0));
    let mut name = [0_u8; NAME_BYTES_MAX];
    let length = libc::socklen_t::try_from(NAME_BYTES_MAX).ok()?;
    // SAFETY: both point to as many bytes as is said beside them, and no service is asked for.
    let result = unsafe {
        libc::getnameinfo(
            socket.as_ptr(),
            socket.len(),
            name.as_mut_ptr().cast(),
            length,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    if result != 0 {
        return None;
    }
    let name = CStr::from_bytes_until_nul(&name).ok()?.to_str().ok()?;
    // An address is no name, whatever a name server says.
    (!name.is_empty() && name.parse::<IpAddr>().is_err()).then(|| name.to_owned())
}

/// Whether a host is in a netgroup.
#[must_use]
pub fn is_in_netgroup(netgroup: &str, host: &str) -> bool {
    let (Ok(netgroup), Ok(host)) = (CString::new(netgroup), CString::new(host)) else {
        return false;
    };
    let _one = NETGROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: both are strings with an end, and no user and no domain is asked for; no other thread
    // is in this function.
    let found =
        unsafe { innetgr(netgroup.as_ptr(), host.as_ptr(), std::ptr::null(), std::ptr::null()) };
    found == 1
}

#[cfg(test)]
mod tests {
    use super::{confirmed_name, is_in_netgroup, leads_back};

    #[test]
    fn a_name_that_leads_elsewhere_is_none_of_the_addresss() {
        let address = "10.0.0.1".parse().unwrap();
        let found = |texts: &[&str]| {
            let found = texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
            leads_back(address, found.into_iter())
        };
        assert!(!found(&["10.0.0.2:0", "[fd00::1]:0"]) && !found(&[]));
        assert!(found(&["10.0.0.2:0", "10.0.0.1:0"]) && found(&["[::ffff:10.0.0.1]:0"]));
    }

    #[test]
    fn the_loopback_has_a_name_that_leads_back() {
        // Machines without a line for it in /etc/hosts have none.
        let name = confirmed_name("127.0.0.1".parse().unwrap());
        assert!(name.is_none_or(|name| name.contains("localhost") || !name.is_empty()));
        // An address for documents has no name.
        assert_eq!(confirmed_name("192.0.2.77".parse().unwrap()), None);
    }

    #[test]
    fn an_unknown_netgroup_has_no_hosts() {
        assert!(!is_in_netgroup("no-such-netgroup", "localhost"));
        assert!(!is_in_netgroup("with\0zero", "localhost"));
    }
}
