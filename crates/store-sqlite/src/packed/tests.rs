//! What goes in comes out, whatever it is, and what was stored once is read for ever.

use super::*;
use proptest::prelude::*;

const BODY: &str = r#"{"action":"send","action_hash":"sha256:e50a6aadb1fff50544ffa851a3008224f27afdd38e68309cd50c6e6f01d55a7f","agent":"agt_01m8020yhvfjs9rwhvzb5nw5aq","decision":"deny","decision_id":"dec_01m8020z31ejnr6emwkremy937","judged_at":"2026-11-21T22:00:58.721Z","matched_policies":["mail/own-domain"],"mutates_state":true,"reason":"Mail \"stays\" in the house","revision":11,"salt":"bdadc87d60ce3737304ce31b"}"#;
const ANSWER: &str = r#"{"decision_id":"dec_01m8020z31ejnr6emwkremy937","decision":"deny","reason":"Mail \"stays\" in the house","action_hash":"sha256:e50a6aadb1fff50544ffa851a3008224f27afdd38e68309cd50c6e6f01d55a7f","receipt":{"tenant":"tnt_01m8020y9eeqd9t2h0app4jzxe","seq":15,"at":"2026-11-21T22:00:58.722Z","hash":"sha256:962a152e480f174624c4eab64dfcd9575d77883cebebf183eae8e29e9035fed9","batch":{"index":1,"size":2,"path":["CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I="],"key":"log.example+2b88c8dd","signature":"xF7ZnHy8/cVNQceNb0vuOmlrLno/f86ecdBe0jSws1MPgXN5vwfNao4joZTHB0h5Z2ugett4UXf8IAz6hP8+CA=="}}}"#;

fn row() -> RowValues {
    RowValues {
        tenant: "tnt_01m8020y9eeqd9t2h0app4jzxe".parse().unwrap(),
        at: "2026-11-21T22:00:58.722Z".parse().unwrap(),
        prev: Digest::ZERO,
        hash: "sha256:962a152e480f174624c4eab64dfcd9575d77883cebebf183eae8e29e9035fed9"
            .parse()
            .unwrap(),
    }
}

/// A body and its answer, packed.
fn packed(body: &str, answer: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut known = Known::of_nothing();
    let packed = pack(body.as_bytes(), &mut known);
    let read = Known::of_body(body);
    assert_eq!(known.values.listed(), read.values.listed());
    assert_eq!(known.strings.listed(), read.strings.listed());
    known.extend(&row(), &Digest::of(body.as_bytes()));
    (packed, pack(answer, &mut known))
}

/// What is read again.
fn read(packed_body: &[u8], packed_answer: Vec<u8>) -> (String, Vec<u8>) {
    let text = body(String::new(), Some(packed_body));
    let answer = answer(packed_answer, &text, &row());
    (text, answer)
}

#[test]
fn what_is_packed_is_the_same_bytes_when_it_is_read() {
    let (body, answer) = packed(BODY, ANSWER.as_bytes());
    assert!(body.len() * 2 < BODY.len(), "{}", body.len());
    assert!(answer.len() * 3 < ANSWER.len(), "{}", answer.len());
    assert_eq!(read(&body, answer), (BODY.to_owned(), ANSWER.into()));
}

/// What is stored today is read by every later version: this is how one body is stored, byte by byte.
#[test]
fn a_packed_body_of_the_first_version_is_still_read() {
    let stored = [
        // The form, `{"action":` and a string that has no number.
        "01 0a01 22 73656e64 22",
        // `,"agent":` and an id.
        "0904 0201 01a200207a3b7cb29c723bfacb5e1557",
        // `,"judged_at":` and a time.
        "0948 03 000001a200207c61",
        // `,"salt":` and bytes.
        "0990 06 0c bdadc87d60ce3737304ce31b",
        // What has no number, and two words in it.
        "2c 2278223a 5b 082d 2c 082d 5d 7d",
    ];
    let text = r#"{"action":"send","agent":"agt_01m8020yhvfjs9rwhvzb5nw5aq","judged_at":"2026-11-21T22:00:58.721Z","salt":"bdadc87d60ce3737304ce31b","x":["deny","deny"]}"#;
    let stored: Vec<u8> = hex(&stored.concat().replace(' ', ""));
    assert_eq!(body(String::new(), Some(&stored)), text);
    assert_eq!(packed(text, b"").0, stored);
}

/// An answer that was stored when `a word that was added` was none yet, byte by byte, and one that is stored now.
#[test]
fn an_answer_of_before_a_word_was_added_is_still_read() {
    let text = r#"{"decision_id":"dec_01m8020z31ejnr6emwkremy937","environment":"a word that was added","reason":"Mail stays in the house"}"#;
    let told = r#"{"decision_id":"dec_01m8020z31ejnr6emwkremy937","agent_message":"a word that was added","team":"Mail stays in the house"}"#;
    let stored = [
        // The form, `{"decision_id":` and the first value of the body.
        "01 0a2a 0700",
        // `,"agent_message":` and the first string of the body.
        "0905 0b00",
        // `,"team":` and the second one.
        "09a1 0b01 7d",
    ];
    let stored = hex(&stored.concat().replace(' ', ""));
    assert_eq!(answer(stored, text, &row()), told.as_bytes());

    let (packed_body, packed_answer) = packed(text, told.as_bytes());
    // The word has a number now, and the string behind it the place that it had.
    let number = words::number(b"a word that was added").unwrap();
    let stored = hex(&format!("010a2a0700090508{number:02x}09a10b017d"));
    assert_eq!(packed_answer, stored);
    assert_eq!(read(&packed_body, packed_answer), (text.to_owned(), told.into()));
}

fn hex(digits: &str) -> Vec<u8> {
    let bytes = digits.as_bytes().chunks(2);
    bytes
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn what_was_stored_before_anything_was_packed_is_read_as_it_stands() {
    assert_eq!(body(BODY.to_owned(), None), BODY);
    assert_eq!(answer(ANSWER.into(), BODY, &row()), ANSWER.as_bytes());
}

#[test]
fn a_string_that_only_looks_like_a_value_stays_a_string() {
    for text in [
        // Upper case, a digit too many, another kind of id, an id beyond 128 bits.
        r#""sha256:E50A6AADB1FFF50544FFA851A3008224F27AFDD38E68309CD50C6E6F01D55A7F""#,
        r#""sha512:e50a6aadb1fff50544ffa851a3008224f27afdd38e68309cd50c6e6f01d55a7f""#,
        r#""xyz_01m8020yhvfjs9rwhvzb5nw5aq""#,
        r#""agt_81m8020yhvfjs9rwhvzb5nw5aq""#,
        r#""agt_01m8020yhvfjs9rwhvzb5nw5aé""#,
        // No such day, no such hour, a leap second, and a zone.
        r#""2026-02-29T22:00:58.721Z""#,
        r#""2026-02-28T24:00:58.721Z""#,
        r#""2016-12-31T23:59:60.000Z""#,
        r#""2026-02-28T22:00:58.721z""#,
        r#""2026-02-28t22:00:58.721Z""#,
        // Bits that are not zero at the end, another alphabet, no padding where it should be.
        r#""CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2J=""#,
        r#""CsUYapGGPo4dkMgIAUqom_Xajj7h2fB2MPA3j2jxq2I=""#,
        r#""bdadc87d60ce3737304ce31B""#,
        r#""bdadc87d60ce3737304ce31é""#,
        r#"",":",":"#,
        r#""""""#,
        "\"",
        "",
        r#"{"act"}"#,
        r#"["act","act":"act"]"#,
    ] {
        let (body, answer) = packed(text, text.as_bytes());
        assert_eq!(read(&body, answer), (text.to_owned(), text.into()), "{text}");
    }
}

#[test]
fn the_next_quote_is_found_wherever_it_stands_and_whatever_is_around_it() {
    for around in 0..=u8::MAX {
        for place in 0..20 {
            let mut text = [around; 20];
            text[place] = b'"';
            for from in 0..=text.len() {
                let found = text[from..].iter().position(|byte| *byte == b'"');
                assert_eq!(
                    next_quote(&text, from),
                    found.map(|found| from + found),
                    "{text:?}"
                );
            }
        }
    }
    assert_eq!(next_quote(b"\"", 2), None);
}

#[test]
fn more_values_than_a_byte_can_name_are_packed_all_the_same() {
    let digests: Vec<_> = (0_u32..600)
        .map(|number| Digest::of(&(number % 300).to_be_bytes()).to_string())
        .collect();
    let text = serde_json::to_string(&digests).unwrap();
    let (body, answer) = packed(&text, text.as_bytes());
    assert!(answer.len() < body.len());
    assert_eq!(read(&body, answer), (text.clone(), text.into()));
}

/// What has a place, as it was found when the first answers were stored: by comparing it with all that is known.
#[derive(Default)]
struct Compared<'t> {
    values: Vec<Value>,
    strings: Vec<&'t str>,
}

impl<'t> Compared<'t> {
    /// An array of strings that are no words, packed as a body where strings are noted, and else as an answer.
    fn pack(&mut self, items: &'t [String], notes_strings: bool) -> Vec<u8> {
        let mut packed = vec![TOKENS, b'['];
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                packed.push(b',');
            }
            assert_eq!(words::number(item.as_bytes()), None, "{item}");
            if let Some(value) = Value::of(item.as_bytes()) {
                self.push_value(value, &mut packed);
            } else {
                self.push_string(item, notes_strings, &mut packed);
            }
        }
        packed.push(b']');
        packed
    }

    fn push_value(&mut self, value: Value, packed: &mut Vec<u8>) {
        if let Some(place) = self.values.iter().position(|known| *known == value) {
            packed.extend([AGAIN, u8::try_from(place).unwrap()]);
        } else {
            value.write_to(packed);
            self.note(value);
        }
    }

    fn push_string(&mut self, item: &'t str, notes_strings: bool, packed: &mut Vec<u8>) {
        let place = self.strings.iter().position(|known| *known == item);
        if let Some(place) = place.filter(|_| !notes_strings) {
            packed.extend([STRING, u8::try_from(place).unwrap()]);
            return;
        }
        packed.extend_from_slice(format!("\"{item}\"").as_bytes());
        if notes_strings && place.is_none() && self.strings.len() < 256 && item.len() >= 3 {
            self.strings.push(item);
        }
    }

    fn note(&mut self, value: Value) {
        if value.can_come_again() && self.values.len() < 256 && !self.values.contains(&value) {
            self.values.push(value);
        }
    }
}

/// One of the strings that there are of a kind: some that are just strings, the shortest of which have no place, two
/// kinds of values that come again, and one that does not.
fn string_of(kind: u8, number: u32) -> String {
    match kind {
        0 => format!("s{number}"),
        1 => Digest::of(&number.to_be_bytes()).to_string(),
        2 => Timestamp::from_millis(number.into()).to_string(),
        _ => format!("{number:024x}"),
    }
}

/// What is stored of a body and an answer is what it always was, and is read again.
fn assert_stored_as_ever(body: &[String], told: &[String]) {
    let text = serde_json::to_string(body).unwrap();
    let told_text = serde_json::to_string(told).unwrap();
    let mut compared = Compared::default();
    let expected_body = compared.pack(body, true);
    let row = row();
    compared.note(Value::tenant(row.tenant));
    compared.note(Value::Time(row.at.millis()));
    for digest in [row.prev, row.hash, Digest::of(text.as_bytes())] {
        compared.note(Value::Digest(*digest.as_bytes()));
    }
    let expected_answer = compared.pack(told, false);

    let (packed_body, packed_answer) = packed(&text, told_text.as_bytes());
    assert_eq!(packed_body, expected_body);
    assert_eq!(packed_answer, expected_answer);
    assert_eq!(read(&packed_body, packed_answer), (text, told_text.into()));
}

/// Nothing that is stored changes with how a place is found, be there places left or not.
#[test]
fn what_is_packed_is_the_same_bytes_however_much_is_known() {
    for different in [3, 20, 200, 255, 256, 257, 400] {
        let numbers = (0..900).map(|number| number % different);
        let body: Vec<_> = numbers
            .flat_map(|number| (0..4).map(move |kind| string_of(kind, number)))
            .collect();
        // The other way round, and with what the body does not have.
        let told: Vec<_> = (0..different + 10)
            .rev()
            .flat_map(|number| [0, 0, 1, 2, 1, 3].map(|kind| string_of(kind, number)))
            .collect();
        assert_stored_as_ever(&body, &told);
    }
}

/// Whoever changes a packed row by hand is found out by whoever verifies what is read, so something has to be read.
#[test]
fn what_cannot_be_unpacked_is_read_as_it_stands() {
    let (packed_body, packed_answer) = packed(BODY, ANSWER.as_bytes());
    for cut in [
        &packed_body[..20],
        b"\x01\x1f",
        b"\x01\x07\x09",
        b"\x01\x08\xff",
        b"\x01\x02\xff",
        b"\x01\x0b\x00",
    ] {
        assert!(unpack(cut, &mut Known::default()).is_err());
        assert_eq!(body(String::new(), Some(cut)), String::from_utf8_lossy(cut));
    }
    // The body that it names values of is gone.
    assert_eq!(answer(packed_answer.clone(), "{}", &row()), packed_answer);
}

/// Texts that are made of what is packed, and of what looks like it.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(BODY.to_owned()),
        Just(ANSWER.to_owned()),
        "[\"\\\\,:{}\\[\\]]{0,4}",
        "\"(act|seq|tenant|reason|trust)\"[:,]?",
        "\"sha256:[0-9a-f]{64}\"",
        "\"(agt|dec|tnt)_[0-7][0-9a-hjkmnp-tv-z]{25}\"",
        "\"20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9]{3}Z\"",
        "\"[A-Za-z0-9+/]{43}=\"",
        "\"[A-Za-z0-9+/]{86}==\"",
        "\"[0-9a-f]{24}\"",
        ".{0,20}",
        "[\\x00-\\x20]{0,3}",
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Strings of which many come more than once, also those that come when there is no place left.
fn strings() -> impl Strategy<Value = Vec<String>> {
    let string = (0_u8..4, 0_u32..500).prop_map(|(kind, number)| string_of(kind, number));
    proptest::collection::vec(string, 0..2_500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_strings_are_packed_to_the_bytes_that_they_always_were(body in strings(), told in strings()) {
        assert_stored_as_ever(&body, &told);
    }
}

proptest! {
    #[test]
    fn any_text_comes_out_as_it_went_in(text in texts(), told in texts()) {
        let (packed_body, packed_answer) = packed(&text, told.as_bytes());
        prop_assert_eq!(read(&packed_body, packed_answer), (text, told.into_bytes()));
    }

    #[test]
    fn any_bytes_can_be_read(bytes in proptest::collection::vec(prop_oneof![0_u8..12, any::<u8>()], 0..80)) {
        let text = body(String::new(), Some(&bytes));
        answer(bytes, &text, &row());
    }
}
