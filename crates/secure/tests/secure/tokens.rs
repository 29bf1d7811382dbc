//! Tokens: as text, and in the cluster that gave them out.

use crate::world::at;
use proptest::prelude::*;
use std::time::Duration;
use tutti_secure::limits::{TOKEN_REMEMBERED, TOKENS_MAX};
use tutti_secure::{
    Admission, Authority, Fingerprint, IssueError, Name, Refusal, Token, TokenError, Tokens, Users,
};

const HOUR: Duration = Duration::from_secs(3600);

fn fingerprint() -> Fingerprint {
    Authority::create(&Name::new("c").unwrap(), at(0)).unwrap().fingerprint()
}

fn issue(tokens: &mut Tokens, now_s: u64) -> Token {
    tokens.issue(&fingerprint(), Admission::Node, at(now_s), HOUR).unwrap()
}

#[test]
fn a_token_is_taken_once_within_its_time() {
    let mut tokens = Tokens::default();
    let (one, other, late) = (issue(&mut tokens, 0), issue(&mut tokens, 0), issue(&mut tokens, 0));
    assert_eq!(tokens.waiting(at(0)), 3);
    assert_eq!(tokens.redeem(one.secret(), at(5)), Ok(Admission::Node));
    assert_eq!(tokens.redeem(one.secret(), at(5)), Err(Refusal::Used));
    assert_eq!(tokens.redeem(other.secret(), at(3599)), Ok(Admission::Node));
    assert_eq!(tokens.redeem(late.secret(), at(3600)), Err(Refusal::Expired));
    assert_eq!(tokens.redeem(late.secret(), at(0)), Ok(Admission::Node));
    let unknown = issue(&mut Tokens::default(), 0);
    assert_eq!(tokens.redeem(unknown.secret(), at(5)), Err(Refusal::Unknown));
}

#[test]
fn a_token_that_was_taken_back_is_not_known_and_no_other_is_touched() {
    let mut tokens = Tokens::default();
    let (one, used, other) = (issue(&mut tokens, 0), issue(&mut tokens, 0), issue(&mut tokens, 0));
    tokens.redeem(used.secret(), at(1)).unwrap();
    tokens.revoke(one.secret());
    tokens.revoke(used.secret());
    assert_eq!(tokens.redeem(one.secret(), at(1)), Err(Refusal::Unknown));
    assert_eq!(tokens.redeem(used.secret(), at(1)), Err(Refusal::Used));
    assert_eq!(tokens.waiting(at(1)), 1);
    let late =
        tokens.issue(&fingerprint(), Admission::Node, at(1), Duration::from_secs(1)).unwrap();
    assert_eq!(tokens.revoke_all(at(2)), 1);
    assert_eq!(tokens.redeem(other.secret(), at(2)), Err(Refusal::Unknown));
    assert_eq!(tokens.redeem(used.secret(), at(2)), Err(Refusal::Used));
    assert_eq!(tokens.redeem(late.secret(), at(2)), Err(Refusal::Expired));
    assert_eq!(tokens.revoke_all(at(2)), 0);
}

#[test]
fn a_token_makes_what_it_was_given_out_for() {
    let mut tokens = Tokens::default();
    let users = Users::Only([1000, 1001].into());
    for admission in [Admission::Admin, Admission::Client(users)] {
        let token = tokens.issue(&fingerprint(), admission.clone(), at(0), HOUR).unwrap();
        assert_eq!(tokens.admission(token.secret(), at(1)), Ok(admission.clone()));
        assert_eq!(tokens.redeem(token.secret(), at(1)), Ok(admission));
        assert_eq!(tokens.admission(token.secret(), at(1)), Err(Refusal::Used));
    }
}

#[test]
fn what_is_kept_outlives_a_restart_and_is_of_no_use_to_a_thief() {
    let mut tokens = Tokens::default();
    let (used, waiting) = (issue(&mut tokens, 0), issue(&mut tokens, 0));
    tokens.redeem(used.secret(), at(1)).unwrap();
    let kept = postcard::to_allocvec(&tokens).unwrap();
    for token in [&used, &waiting] {
        let secret = postcard::to_allocvec(token.secret()).unwrap();
        assert!(!kept.windows(secret.len()).any(|window| window == secret));
    }
    let mut tokens: Tokens = postcard::from_bytes(&kept).unwrap();
    assert_eq!(tokens.redeem(used.secret(), at(2)), Err(Refusal::Used));
    assert_eq!(tokens.redeem(waiting.secret(), at(2)), Ok(Admission::Node));
}

#[test]
fn tokens_are_bounded_and_forgotten() {
    let mut tokens = Tokens::default();
    let authority = fingerprint();
    let mut issue = |now_s| tokens.issue(&authority, Admission::Node, at(now_s), HOUR);
    let first = issue(0).unwrap();
    for _ in 1..TOKENS_MAX {
        issue(0).unwrap();
    }
    assert_eq!(issue(0), Err(IssueError::TooMany));
    // Those that have expired make room, and are remembered for a while.
    issue(3600).unwrap();
    assert_eq!(tokens.redeem(first.secret(), at(3600)), Err(Refusal::Expired));
    let end_s = 3600 + TOKEN_REMEMBERED.as_secs();
    tokens.issue(&authority, Admission::Node, at(end_s), HOUR).unwrap();
    assert_eq!(tokens.redeem(first.secret(), at(end_s)), Err(Refusal::Unknown));
    assert!(postcard::to_allocvec(&tokens).unwrap().len() < 200);

    // However many are over: the memory is bounded, and the last are remembered.
    let mut over = || tokens.issue(&authority, Admission::Node, at(end_s), Duration::ZERO).unwrap();
    let first = over();
    for _ in 0..TOKENS_MAX {
        over();
    }
    let last = over();
    assert!(postcard::to_allocvec(&tokens).unwrap().len() < 50 * (TOKENS_MAX + 3));
    assert_eq!(tokens.redeem(first.secret(), at(end_s)), Err(Refusal::Unknown));
    assert_eq!(tokens.redeem(last.secret(), at(end_s)), Err(Refusal::Expired));
}

#[test]
fn a_token_is_its_text() {
    let (mut tokens, authority) = (Tokens::default(), fingerprint());
    let token = tokens.issue(&authority, Admission::Node, at(0), HOUR).unwrap();
    let text = token.to_string();
    assert_eq!(text.len(), 63);
    assert!(text.starts_with("tutti1-"));
    assert_eq!(text.parse(), Ok(token.clone()));
    assert_eq!(format!(" {}\n", text.to_uppercase()).parse(), Ok(token.clone()));
    let broken = format!("{}\n  {}", &text[..30], &text[30..]);
    assert_eq!(broken.parse(), Ok(token.clone()));
    assert!(token.is_of(&authority));
    assert!(!token.is_of(&fingerprint()));
    // Logs are no place for it.
    let other = tokens.issue(&authority, Admission::Node, at(0), HOUR).unwrap();
    assert_eq!(format!("{token:?}"), format!("{other:?}"));
}

#[test]
fn what_is_wrong_with_a_text_is_told() {
    let text = issue(&mut Tokens::default(), 0).to_string();
    let parse = |text: &str| text.parse::<Token>().unwrap_err();
    assert_eq!(parse(""), TokenError::NotAToken);
    assert_eq!(parse("swordfish"), TokenError::NotAToken);
    assert_eq!(parse(&text[1..]), TokenError::NotAToken);
    assert_eq!(parse(&text.replace("tutti1-", "tutti2-")), TokenError::OtherVersion);
    assert_eq!(parse(&text[..62]), TokenError::Length { letters: 55 });
    assert_eq!(parse(&format!("{text}a")), TokenError::Length { letters: 57 });
    assert_eq!(parse("tutti1-"), TokenError::Length { letters: 0 });
    for letter in ["0", "ß", "-"] {
        let slip = format!("{}{letter}{}", &text[..20], &text[21..]);
        assert_eq!(parse(&slip), TokenError::Mistyped);
    }
}

proptest! {
    #[test]
    fn each_slip_of_the_hand_is_noticed(place in 7_usize..63, letter in "[a-z2-7]") {
        let text = issue(&mut Tokens::default(), 0).to_string();
        prop_assume!(text[place..=place] != letter);
        let slip = format!("{}{letter}{}", &text[..place], &text[place + 1..]);
        prop_assert_eq!(slip.parse::<Token>(), Err(TokenError::Mistyped));
    }

    #[test]
    fn two_letters_in_the_wrong_order_are_noticed(place in 7_usize..62) {
        let text = issue(&mut Tokens::default(), 0).to_string();
        let mut bytes = text.clone().into_bytes();
        bytes.swap(place, place + 1);
        let slip = String::from_utf8(bytes).unwrap();
        prop_assume!(slip != text);
        prop_assert_eq!(slip.parse::<Token>(), Err(TokenError::Mistyped));
    }

    #[test]
    fn any_text_is_a_token_or_an_error(text in "(tutti[0-9]?-)?\\PC*") {
        let _ = text.parse::<Token>();
    }
}
