//! What happens without a solver, without time, and to one that is not needed any more.

use crate::desk::{Desk, NOW, mine};
use policy_diff::report::Answer;
use policy_diff::{Bounds, Prover, Sets, diff};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PERMIT: &str = "@id(\"a\") permit (principal, action, resource) when { context.sensitive };";

fn prover(program: &str, bounds: Bounds) -> Prover {
    Prover::new(PathBuf::from(program), 1, bounds)
}

#[tokio::test]
async fn without_a_solver_the_answer_says_so_and_which_policies_differ() {
    let mut desk = Desk::bare();
    for (program, told) in [
        ("there-is-no-such-solver", "is not there"),
        ("true", "does not say that it is cvc5"),
    ] {
        desk.prover = prover(program, Bounds::default());
        let report = desk.compare_sets(&[mine("")], &[mine(PERMIT)]).await;
        assert!(!report.proof.available && !report.proof.complete);
        let why = report.proof.why.unwrap();
        assert!(why.contains(told) && why.contains("--cvc5"), "{why}");
        assert_eq!(report.allows_more.answer, Answer::Unknown);
        assert_eq!(report.allows_more.unknown[0].actions.count, 4);
        assert_eq!(report.policies.added[0].id, "mine/a");
    }
}

#[tokio::test]
async fn sets_that_say_the_same_need_no_solver() {
    let mut desk = Desk::bare();
    desk.prover = prover("there-is-no-such-solver", Bounds::default());
    let renamed = PERMIT.replace("\"a\")", "\"b\") @reason(\"Another\")");
    let report = desk.compare_sets(&[mine(PERMIT)], &[mine(&renamed)]).await;
    assert_eq!(
        [report.allows_more.answer, report.allows_less.answer],
        [Answer::No; 2]
    );
    assert!(report.proof.complete && !report.proof.available);
    assert_eq!(
        (report.policies.added.len(), report.policies.removed.len()),
        (1, 1)
    );
}

#[tokio::test]
async fn what_there_is_no_time_for_is_unknown() {
    let mut desk = Desk::bare();
    for bounds in [
        Bounds {
            all: Duration::ZERO,
            ..Bounds::default()
        },
        Bounds {
            kinds_max: 0,
            ..Bounds::default()
        },
        Bounds {
            policies_max: 0,
            ..Bounds::default()
        },
    ] {
        desk.prover = prover("cvc5", bounds);
        let report = desk.compare_sets(&[mine("")], &[mine(PERMIT)]).await;
        assert!(report.proof.available && !report.proof.complete);
        assert_eq!(
            [report.allows_more.answer, report.allows_less.answer],
            [Answer::Unknown; 2]
        );
    }
}

/// A product of unknown numbers is more than a solver can do in a millisecond.
#[tokio::test]
async fn a_question_that_takes_too_long_is_unknown() {
    let mut desk = Desk::bare();
    let hard = |prime: &str| {
        format!(
            "@id(\"a\") permit (principal, action == Action::\"payments/refund\", resource) when {{ \
             context.input.amount * context.input.amount * context.input.amount * context.trust.rank == {prime} && \
             context.now.toTime().toMilliseconds() * context.input.amount == {prime} }};"
        )
    };
    let question = Duration::from_millis(1);
    desk.prover = prover(
        "cvc5",
        Bounds {
            question,
            ..Bounds::default()
        },
    );
    let report = desk
        .compare_sets(&[mine(&hard("1000003"))], &[mine(&hard("1000033"))])
        .await;
    assert!(report.proof.available && !report.proof.complete);
    assert_eq!(report.allows_more.answer, Answer::Unknown);
}

#[tokio::test]
async fn as_many_comparisons_run_at_once_as_may() {
    let prover = prover("cvc5", Bounds::default());
    let turn = prover.turn().unwrap();
    assert!(prover.turn().is_none());
    drop(turn);
    assert!(prover.turn().is_some());
}

/// A solver that never answers, and writes down which process it is.
fn silent(folder: &Path) -> PathBuf {
    let (program, note) = (folder.join("solver"), folder.join("process"));
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'This is cvc5 version 0'; exit; fi\n\
         echo $$ >{note}.new && mv {note}.new {note}\nexec sleep 600\n",
        note = note.display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    program
}

/// Looks at something again and again until it is there.
async fn await_some<T>(look: impl Fn() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_comparison_that_nobody_waits_for_leaves_no_solver_behind() {
    let folder = tempfile::tempdir().unwrap();
    let prover = Prover::new(silent(folder.path()), 1, Bounds::default());
    let desk = Desk::bare();
    let (before, after) = (desk.compile(&[mine("")]), desk.compile(&[mine(PERMIT)]));
    let sets = Sets {
        before: &before,
        after: &after,
        registry: desk.registry(),
        now: NOW,
    };
    let turn = prover.turn().unwrap();
    let note = folder.path().join("process");
    let process = tokio::select! {
        report = diff(sets, &turn) => panic!("{report:?}"),
        process = await_some(|| std::fs::read_to_string(&note).ok()) => process,
    };
    let status = format!("/proc/{}/stat", process.trim());
    // It is gone, or dead and only waits for being read.
    await_some(|| match std::fs::read_to_string(&status) {
        Ok(text) => text.contains(") Z ").then_some(()),
        Err(_) => Some(()),
    })
    .await;
}

/// Each policy names a team, and a solver is told how all entities that are named are in each other.
#[tokio::test]
async fn play() {
    let desk = Desk::bare();
    for count in [10, 50, 100, 200, 400] {
        let text: String = (0..count)
            .map(|number| format!("@id(\"{number}\") permit (principal in Team::\"t{number}\", action == Action::\"github/merge\", resource) when {{ context.trust.rank > {} }};", number % 5))
            .collect();
        let more = format!(
            "{text} @id(\"more\") permit (principal in Team::\"t1\", action == Action::\"github/merge\", resource) when {{ context.sensitive }};"
        );
        let begun = std::time::Instant::now();
        let report = desk.compare(&text, &more).await;
        println!(
            "{count} {:?} {:?} {:?}",
            begun.elapsed(),
            report.allows_more.answer,
            report.allows_more.unknown
        );
    }
}
