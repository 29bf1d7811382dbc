//! Any text as what a user wants to be notified of and where, and as what a webhook's server
//! answers.
//!
//! What is accepted can't be taken for an option of a mail program or for several addresses, and
//! adds no line to a request; a URL's parts are the URL.

use tutti_wire::notify::{HookUrl, Notify, NotifyOn, NotifyWay, answer_status};

/// The length of what is said of a wrong text, at most.
const WRONG_CHARS_MAX: usize = 600;

fn check_url(url: &str) {
    let hook = match HookUrl::parse(url) {
        Ok(hook) => hook,
        Err(error) => {
            assert!(error.to_string().chars().count() <= WRONG_CHARS_MAX, "{error}");
            return;
        }
    };
    let scheme = if hook.is_tls { "https://" } else { "http://" };
    assert_eq!([scheme, hook.authority, hook.path].concat(), url);
    assert!(url.bytes().all(|byte| byte.is_ascii_graphic()), "{url:?}");
    assert!(hook.port > 0 && !hook.host.is_empty() && hook.authority.contains(hook.host));
    assert!(hook.path.is_empty() || hook.path.starts_with('/'));
}

fn check_mail(address: &str) {
    let way = NotifyWay::Mail(address.to_owned());
    if way.check().is_ok() {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-@".contains(&byte);
        assert!(address.bytes().all(is_plain) && !address.starts_with('-'), "{address:?}");
        assert!(!address.is_empty() && address.matches('@').count() <= 1, "{address:?}");
    }
}

/// See the file.
pub fn notify(input: &[u8]) {
    if let Some(status) = answer_status(input) {
        assert!(input.starts_with(b"HTTP/1."));
        let line = input.split(|byte| *byte == b'\n').next().expect("there is a first line");
        let line = std::str::from_utf8(line).expect("it is text");
        let is_status = |word: &str| word.parse() == Ok(status);
        assert!(line.split_ascii_whitespace().any(is_status), "{line:?}");
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Err(error) = text.parse::<NotifyOn>() {
        assert!(error.to_string().chars().count() <= WRONG_CHARS_MAX, "{error}");
    }
    check_url(text);
    check_mail(text);
    if NotifyWay::Command(text.to_owned()).check().is_ok() {
        let is_bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        assert!(!text.trim().is_empty() && !text.contains(is_bad), "{text:?}");
    }
    // All of it at once: a way in each line.
    let ways: Vec<NotifyWay> = text.lines().map(|line| NotifyWay::Webhook(line.into())).collect();
    let notify = Notify { ways, ..Notify::default() };
    if notify.check().is_ok() {
        assert!(notify.ways.iter().all(|way| way.check().is_ok()));
    }
}
