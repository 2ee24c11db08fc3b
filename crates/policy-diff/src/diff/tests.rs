//! That no is never said where an ask shows yes: whatever the sets, and whatever is asked.

use super::*;
use crate::desk::{Desk, mine};
use crate::random;
use crate::report::Answer;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// How many pairs of sets are compared: each takes some questions to the solver.
const PAIRS: u32 = 12;

#[test]
fn no_is_never_said_of_what_an_ask_shows() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let pairs = (random::policies(0..4), random::policies(0..4), any::<bool>());
    let asks = prop::collection::vec(random::ask(), 256);
    let config = Config {
        cases: PAIRS,
        max_shrink_iters: 64,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&(pairs, asks), |((before, after, is_bare), asks)| {
            let desk = if is_bare { Desk::bare() } else { Desk::new() };
            let report = runtime.block_on(desk.compare(&before, &after));
            let [before_set, after_set] = [&before, &after].map(|text| desk.compile(&[mine(text)]));
            for ask in asks {
                let verdict = |set| ask.put(set, desk.registry()).unwrap().verdict();
                let (was, is) = (verdict(&before_set), verdict(&after_set));
                let says_no = |answer| answer == Answer::No;
                let better = Way::More.leads(was, is) && says_no(report.allows_more.answer);
                let worse = Way::Less.leads(was, is) && says_no(report.allows_less.answer);
                prop_assert!(
                    !better && !worse,
                    "{}\n---\n{}\n{} {}",
                    before,
                    after,
                    was.as_str(),
                    is.as_str()
                );
            }
            Ok(())
        })
        .unwrap();
}
