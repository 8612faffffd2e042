//! What the schemes say of themselves, against what they are.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use hushtable_pir::dpf::Side;
use hushtable_pir::onion::ParameterSet;
use serde_json::Value;
use tonic_types::{ErrorDetails, StatusExt};

use super::{SCHEMES, reasons, refusal_of, tables};
use crate::TlsSpec;
use crate::refusal::{Code, DOMAIN, Fact, FactKind, Facts, MESSAGE_CHARS_MAX, Refusal, Status};
use crate::schemes::described::Described;
use crate::settings::{Kind, SIDE};

fn fields(value: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    for (name, value) in value.as_object().unwrap() {
        match value.is_object() {
            true => fields(value, &format!("{prefix}{name}."), found),
            false => drop(found.insert(format!("{prefix}{name}"))),
        }
    }
}

/// A spec with every part in it.
fn whole(scheme: &Described) -> Value {
    let file = || "file".into();
    let (client_ca, client_name, peer_ca) = (None, None, None);
    let tls = TlsSpec { cert: file(), key: file(), client_ca, client_name, peer_ca };
    let mut spec = (scheme.defaults)().unwrap();
    spec["tls"] = serde_json::to_value(tls).unwrap();
    spec
}

#[test]
fn every_field_of_every_spec_is_described_and_nothing_else() {
    for served in SCHEMES {
        let mut found = BTreeSet::new();
        fields(&whole(served), "", &mut found);
        let settings = served.settings();
        let described: BTreeSet<_> = settings.iter().map(|s| s.name.to_owned()).collect();
        assert_eq!(described, found, "{}", served.name);
        assert_eq!(settings.len(), described.len(), "{}: a name twice", served.name);
    }
}

#[test]
fn a_default_is_the_specs_and_where_there_is_none_words_say_what_happens() {
    let default = |scheme: &str, name: &str| {
        let served = SCHEMES.iter().find(|served| served.name == scheme).unwrap();
        let settings = served.settings();
        served.default_of(settings.iter().find(|s| s.name == name).unwrap())
    };
    assert_eq!(default("pair", "request_ms_max"), 60_000);
    assert_eq!(default("pair", "prgs"), serde_json::json!(["aes128", "chacha20", "chacha12"]));
    assert_eq!(default("pair", "side"), Value::Null);
    assert_eq!(default("onion", "parameters"), "n4096_128");
    assert_eq!(default("train", "metrics_addr"), "127.0.0.1:4001");
    for served in SCHEMES {
        for setting in served.settings() {
            let is_unset = served.default_of(&setting).is_null();
            assert_eq!(is_unset, !setting.unset.is_empty(), "{}", setting.name);
        }
    }
}

#[test]
fn a_name_that_two_specs_share_is_one_setting() {
    for served in SCHEMES {
        for setting in served.settings() {
            for other in SCHEMES.iter().flat_map(Described::settings) {
                assert!(other.name != setting.name || other == setting, "{}", setting.name);
            }
        }
    }
}

#[test]
fn kinds_are_what_the_specs_take() {
    for served in SCHEMES {
        for setting in served.settings() {
            let value = served.default_of(&setting);
            let fits = match setting.kind {
                Kind::Bytes | Kind::Count | Kind::Microseconds | Kind::Milliseconds => {
                    value.is_u64()
                }
                Kind::Flag => value.is_boolean(),
                Kind::Fraction => value.is_f64(),
                Kind::Names | Kind::Paths => value.is_array(),
                Kind::Choice(words) => words.iter().any(|word| value == *word),
                Kind::Addr | Kind::Path | Kind::Text => value.is_string(),
            };
            assert!(fits || value.is_null(), "{}: {value}", setting.name);
        }
    }
}
#[test]
fn the_words_of_a_choice_are_those_that_are_taken() {
    let onion = SCHEMES.iter().find(|served| served.name == "onion").unwrap();
    let parameters = onion.settings.iter().find(|s| s.name == "parameters").unwrap();
    let Kind::Choice(words) = parameters.kind else { panic!("{:?}", parameters.kind) };
    assert_eq!(words, ParameterSet::ALL.map(ParameterSet::name));
    let Kind::Choice(words) = SIDE.kind else { panic!("{:?}", SIDE.kind) };
    assert_eq!(words, [Side::Left, Side::Right].map(Side::name));
}

#[test]
fn every_refusal_survives_the_wire() {
    let own = tables().flat_map(|table| (table.samples)());
    let all: Vec<_> = Refusal::samples().into_iter().chain(own).collect();
    let mut seen = BTreeSet::new();
    for refusal in all {
        let status = refusal.to_status();
        assert_eq!(status.message(), refusal.to_string());
        seen.insert(Facts::from_status(&status).unwrap().0);
        assert_eq!(refusal_of(&status), Some(refusal));
    }
    let known: BTreeSet<_> = reasons().iter().map(|r| r.name.to_owned()).collect();
    assert_eq!(seen, known, "each reason has a sample");
    assert_eq!(known.len(), reasons().len(), "no reason has two meanings");
}

#[test]
fn a_fact_that_is_missing_or_odd_makes_a_reason_unknown() {
    let tables: Vec<_> = tables().collect();
    for reason in reasons() {
        let facts = Facts::default();
        let known = Refusal::of_facts(reason.name, &facts, &tables);
        assert_eq!(known.is_some(), reason.facts.is_empty(), "{}", reason.name);
        let mut facts = Facts::default();
        Duration::ZERO.write("", &mut facts);
        reason.facts.iter().for_each(|fact| facts.put(fact.name, "\u{1}?".into()));
        let is_lax = |fact: &FactKind| {
            fact.kind == "text" || fact.is_delay() || fact.words.contains(&"other")
        };
        let lax = reason.facts.iter().all(is_lax);
        let known = Refusal::of_facts(reason.name, &facts, &tables);
        assert_eq!(known.is_some(), lax, "{}", reason.name);
    }
}

#[test]
fn a_long_text_of_another_machine_is_cut() {
    let mut facts = Facts::default();
    facts.put("why", "x".repeat(9999));
    assert_eq!(String::read("why", &facts).unwrap().len(), MESSAGE_CHARS_MAX);
}

#[test]
fn a_status_of_other_origin_is_no_refusal() {
    assert_eq!(refusal_of(&Status::unavailable("gone")), None);
    let other = ErrorDetails::with_error_info("BUSY", "elsewhere", HashMap::new());
    let status = Status::with_error_details(Code::ResourceExhausted, "busy", other);
    assert_eq!(refusal_of(&status), None);
    let incomplete = ErrorDetails::with_error_info("BUSY", DOMAIN, HashMap::new());
    let status = Status::with_error_details(Code::ResourceExhausted, "busy", incomplete);
    assert_eq!(refusal_of(&status), None);
    let garbage = Status::with_details(Code::Internal, "?", vec![0xff; 40].into());
    assert_eq!(refusal_of(&garbage), None);
}
