//! What is looked at while a run goes on: how much memory the gateway has, how long its write-ahead log is, and where a
//! stretch of the run ends.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::Course;
use crate::process::GatewayProcess;

/// How often the length of the log is looked at. It grows and is written back within seconds.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Looks for ever. Stretches are whole: what is left at the end is none. Each is told when it ends, because the ledger
/// of a long run is verified for minutes before there is a report.
pub(super) async fn watch(
    course: &Course,
    gateway: Option<&GatewayProcess>,
    stretch: Duration,
) -> Infallible {
    let mut stretch_end = course.measured_from + stretch;
    loop {
        sleep_until((Instant::now() + LOOK_EVERY).min(stretch_end).into()).await;
        let mut tally = course.tally.borrow_mut();
        tally.note_wal(gateway.and_then(GatewayProcess::wal_mib));
        if Instant::now() >= stretch_end {
            let (number, ended) = tally.end_stretch(gateway.and_then(GatewayProcess::resident_mib));
            eprintln!("stretch {number:<3} {ended}");
            stretch_end += stretch;
        }
    }
}
