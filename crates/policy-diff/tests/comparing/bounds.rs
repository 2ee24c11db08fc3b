//! What happens without a solver, without time, and to one that is not needed any more.

use crate::desk::{Desk, mine, patient};
use policy_diff::report::Answer;
use policy_diff::{Bounds, Prover, diff};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
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
    assert!(prover.turn_within(Duration::ZERO).await.is_none());
    drop(turn);
    assert!(prover.turn().is_some());
    assert!(prover.turn_within(Duration::ZERO).await.is_some());
}

/// A solver that never answers, and leaves a link to which process it is: it can write no file.
fn silent(folder: &Path) -> PathBuf {
    let note = folder.join("process");
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'This is cvc5 version 0'; exit; fi\n\
         ln -s $$ {}\nexec sleep 600\n",
        note.display()
    );
    script(folder, &text)
}

/// A solver that only says its version, and with it how large a core file and any file of it may be, its folder, and
/// the names of its environment.
fn curious(folder: &Path) -> PathBuf {
    let text = "#!/bin/sh\n[ \"$1\" = --version ] || exit\n\
                echo \"This is cvc5 core=$(ulimit -c) file=$(ulimit -f) folder=$(pwd)\" \
                $(env | sed 's/=.*//')\n";
    script(folder, text)
}

/// A program of this text.
fn script(folder: &Path, text: &str) -> PathBuf {
    let [draft, program] = ["draft", "solver"].map(|name| folder.join(name));
    std::fs::write(&draft, text).unwrap();
    std::fs::set_permissions(&draft, Permissions::from_mode(0o755)).unwrap();
    // What this process has written may be open still in one that another test has just started, and could not be run.
    let copied = Command::new("cp").args([&draft, &program]).status().unwrap();
    assert!(copied.success());
    program
}

#[tokio::test]
async fn a_solver_is_shown_nothing_of_the_environment_and_writes_no_file() {
    // A shell adds some of its own.
    let known = ["PATH", "LD_LIBRARY_PATH", "PWD", "OLDPWD", "SHLVL", "_"];
    let is_known = |name: &str| known.contains(&name);
    assert!(std::env::vars().any(|(name, _)| !is_known(&name)));
    let folder = tempfile::tempdir().unwrap();
    let mut desk = Desk::bare();
    desk.prover = Prover::new(curious(folder.path()), 1, Bounds::default());
    let report = desk.compare_sets(&[mine("")], &[mine(PERMIT)]).await;
    let seen = report.proof.solver.unwrap();
    let words: Vec<_> = seen.split(' ').collect();
    let (bounds, names) = words.split_at(4);
    assert_eq!(bounds, ["cvc5", "core=0", "file=0", "folder=/"], "{seen}");
    assert!(names.contains(&"PATH"), "{seen}");
    assert!(names.iter().all(|name| is_known(name)), "{seen}");
}

/// It is started in another folder.
#[tokio::test]
async fn a_solver_that_is_named_from_the_gateways_folder_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let program = curious(&folder.path().canonicalize().unwrap());
    let here = std::env::current_dir().unwrap();
    // From `/` there is no such folder, and `..` would lead to the same place from anywhere.
    let mut relative = PathBuf::from("tests/comparing/../..");
    relative.extend(here.components().skip(1).map(|_| ".."));
    relative.push(program.strip_prefix("/").unwrap());
    let mut desk = Desk::bare();
    desk.prover = Prover::new(relative, 1, Bounds::default());
    let report = desk.compare_sets(&[mine("")], &[mine(PERMIT)]).await;
    assert!(report.proof.available, "{:?}", report.proof.why);
}

/// A solver that says its version, and these lines, whatever it is asked.
fn talkative(folder: &Path, lines: &[&str]) -> PathBuf {
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'This is cvc5 version 0'; exit; fi\n\
         printf '%s\\n' '{}'\nexec cat >/dev/null\n",
        lines.join("' '")
    );
    script(folder, &text)
}

#[tokio::test]
async fn nothing_that_a_solver_says_is_repeated() {
    let mut desk = Desk::bare();
    for lines in [
        &["(error \"Parse Error: Unexpected token: SECRET\")"][..],
        &["SECRET"],
        &["sat", "(error \"SECRET\")"],
        &["sat", "(", "(define-fun t0 () SECRET SECRET)", ")"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        desk.prover = Prover::new(talkative(folder.path(), lines), 1, patient());
        let report = desk.compare_sets(&[mine("")], &[mine(PERMIT)]).await;
        assert!(report.proof.available && !report.proof.complete, "{lines:?}");
        assert_eq!(report.allows_more.answer, Answer::Unknown, "{lines:?}");
        let told = serde_json::to_string(&report).unwrap();
        assert!(!told.contains("SECRET"), "{told}");
    }
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
    let prover = Prover::new(silent(folder.path()), 1, patient());
    let comparison = Desk::bare().comparison(&[mine("")], &[mine(PERMIT)]);
    let turn = prover.turn().unwrap();
    let note = folder.path().join("process");
    let process = tokio::select! {
        report = diff(comparison, turn) => panic!("{report:?}"),
        process = await_some(|| std::fs::read_link(&note).ok()) => process,
    };
    let status = format!("/proc/{}/stat", process.display());
    // It is gone, or dead and only waits for being read.
    await_some(|| match std::fs::read_to_string(&status) {
        Ok(text) => text.contains(") Z ").then_some(()),
        Err(_) => Some(()),
    })
    .await;
}

/// Permits of refunds, each on a condition of its own.
fn many(count: usize, condition: impl Fn(usize) -> String) -> String {
    let policies = (0..count).map(|number| {
        let condition = condition(number);
        let scope = "(principal, action == Action::\"payments/refund\", resource)";
        format!("@id(\"{number}\") permit {scope} when {{ {condition} }};\n")
    });
    policies.collect::<Vec<_>>().concat()
}

#[tokio::test]
async fn many_policies_about_one_action_are_compared() {
    let desk = Desk::bare();
    let before = many(150, |number| {
        format!("context.input has note && context.input.note like \"x{number}*\"")
    });
    let report = desk.compare(&before, &format!("{before}{PERMIT}")).await;
    assert_eq!(report.allows_more.answer, Answer::Yes);
    assert_eq!(report.allows_less.answer, Answer::No);
}

#[tokio::test]
async fn what_would_make_too_large_a_formula_is_unknown() {
    let desk = Desk::bare();
    let sum = format!("0 < {}", ["context.input.amount"; 40].join(" + "));
    let teams = many(200, |number| format!("principal in Team::\"t{number}\""));
    for (after, told) in [
        (many(1, |_| sum.clone()), "too large a formula"),
        (teams, "name more than"),
    ] {
        let report = desk.compare("", &after).await;
        assert_eq!(
            [report.allows_more.answer, report.allows_less.answer],
            [Answer::Unknown; 2]
        );
        let why = &report.allows_more.unknown[0].why;
        assert!(why.contains(told), "{why}");
    }
}

/// What a formula says of every two entities it says of what is taken out of records, too; and of an action in one it goes
/// through all actions.
#[tokio::test]
async fn what_is_taken_out_of_records_counts_like_what_is_named() {
    let desk = Desk::bare();
    let chosen = |number: usize, one: &str, other: &str| {
        format!("{{a: if context.trust.rank == {number} then {one} else {other}}}.a == {other}")
    };
    let merge = "Action::\"github/merge\"";
    let actions = many(20, |number| chosen(number, "action", merge));
    let teams = many(151, |number| chosen(number, "Team::\"ops\"", "Team::\"leads\""));
    for (after, told) in [(actions, "put actions into records"), (teams, "name more than")] {
        let report = desk.compare("", &after).await;
        assert_eq!(
            [report.allows_more.answer, report.allows_less.answer],
            [Answer::Unknown; 2]
        );
        let why = &report.allows_more.unknown[0].why;
        assert!(why.contains(told), "{why}");
    }
}

/// A forbid that can fail has to come out for whatever permits, so it stands in every permit that can fail by itself.
#[tokio::test]
async fn forbids_that_can_fail_count_with_each_permit_that_can() {
    let desk = Desk::bare();
    let forbids = (0..3).map(|number| {
        let sums = (0..8).map(|link| format!("context.input.amount + {link} == {}", 1_000 + number));
        let sums = sums.collect::<Vec<_>>().join(" || ");
        let scope = "(principal, action == Action::\"payments/refund\", resource)";
        format!("@id(\"f{number}\") forbid {scope} when {{ {sums} }};\n")
    });
    let forbids = forbids.collect::<Vec<_>>().concat();
    // Permits that cannot fail have them once, together.
    let permits = many(30, |number| format!("context.input.amount == {}", 2 * number));
    let report = desk.compare("", &format!("{forbids}{permits}")).await;
    assert_eq!(
        [report.allows_more.answer, report.allows_less.answer],
        [Answer::Yes, Answer::No]
    );
    let permits = many(30, |number| format!("context.input.amount * 2 == {}", 4 * number));
    let report = desk.compare("", &format!("{forbids}{permits}")).await;
    assert_eq!(
        [report.allows_more.answer, report.allows_less.answer],
        [Answer::Unknown; 2]
    );
    let why = &report.allows_more.unknown[0].why;
    assert!(why.contains("each permit that can fail"), "{why}");
}

#[tokio::test]
async fn a_long_condition_is_no_large_formula() {
    let desk = Desk::bare();
    let condition = |last: &str| {
        let mut all = vec!["context.input has note && context.input.note like \"*a*\""; 20];
        all.push(last);
        many(1, |_| all.join(" && "))
    };
    let report = desk
        .compare(&condition("context.sensitive"), &condition("true"))
        .await;
    assert_eq!(
        [report.allows_more.answer, report.allows_less.answer],
        [Answer::Yes, Answer::No]
    );
}
