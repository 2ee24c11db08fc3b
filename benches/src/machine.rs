//! The machine that a run was on, and what processes took of it: from `/proc`, so on Linux only. What cannot be read is left out.

use std::fmt;
use std::fs;
use std::time::Duration;

use serde::Serialize;

/// Parts of a second that `/proc` counts in, the same on every Linux of today.
const TICKS_PER_SECOND: f64 = 100.0;
/// Kibibytes in a mebibyte.
const KIB_PER_MIB: f64 = 1_024.0;

/// What the numbers of a run are numbers of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// What the processor calls itself.
    pub processor: String,
    /// How many of them there are.
    pub cores: usize,
    /// The kernel.
    pub kernel: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let unknown = || "unknown".to_owned();
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Self {
            processor: value(&info, "model name").map_or_else(unknown, str::to_owned),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: kernel.map_or_else(unknown, |kernel| format!("Linux {}", kernel.trim())),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            processor,
            cores,
            kernel,
        } = self;
        write!(f, "{processor}, {cores} cores, {kernel}")
    }
}

/// How many cores a run took on average, and how many it could not have.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cpu {
    /// The generator itself.
    pub generator_cores: Option<f64>,
    /// The gateway, if it is known which process it is.
    pub gateway_cores: Option<f64>,
    /// What the hypervisor gave to others while something here was ready to run, of all cores of the machine together. A run with
    /// more than a few hundredths of that says more about the neighbours than about the gateway.
    pub stolen_cores: Option<f64>,
    /// What nobody wanted, of all cores of the machine together; waiting for the disk is among it.
    pub idle_cores: Option<f64>,
}

/// Counts what is taken from its start on.
#[derive(Debug, Clone, Copy)]
pub struct CpuClock {
    gateway: Option<u32>,
    generator_before: Option<f64>,
    gateway_before: Option<f64>,
    machine_before: Option<NotHad>,
}

impl CpuClock {
    /// Starts counting.
    pub fn start(gateway: Option<u32>) -> Self {
        Self {
            gateway,
            generator_before: cpu_seconds("self"),
            gateway_before: gateway.and_then(|pid| cpu_seconds(&pid.to_string())),
            machine_before: NotHad::until_now(),
        }
    }

    /// What was taken since then.
    pub fn stop(self, elapsed: Duration) -> Cpu {
        let cores = |before: Option<f64>, process: &str| {
            Some((cpu_seconds(process)? - before?) / elapsed.as_secs_f64())
        };
        let gateway = self.gateway.map(|pid| pid.to_string());
        let not_had = self.machine_before.zip(NotHad::until_now());
        let not_had = |seconds: fn(NotHad) -> f64| {
            // What waited for the disk is a guess of the kernel's, and can go back.
            let cores = |(before, after)| (seconds(after) - seconds(before)) / elapsed.as_secs_f64();
            not_had.map(|both| f64::max(cores(both), 0.0))
        };
        Cpu {
            generator_cores: cores(self.generator_before, "self"),
            gateway_cores: gateway.and_then(|process| cores(self.gateway_before, &process)),
            stolen_cores: not_had(|seconds| seconds.stolen),
            idle_cores: not_had(|seconds| seconds.idle),
        }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = |cores: Option<f64>| {
            cores.map_or_else(|| "unknown".to_owned(), |cores| format!("{cores:.2} cores"))
        };
        write!(
            f,
            "generator {}, gateway {}; stolen {}, idle {}",
            cores(self.generator_cores),
            cores(self.gateway_cores),
            cores(self.stolen_cores),
            cores(self.idle_cores)
        )
    }
}

/// Seconds since it was started in which no process had the cores of a machine, over all of them.
#[derive(Debug, Clone, Copy, PartialEq)]
struct NotHad {
    stolen: f64,
    idle: f64,
}

impl NotHad {
    fn until_now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the line of all cores: user, nice, system, idle, waiting for the disk, two kinds of interrupts, stolen.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<f64> = line
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        let seconds = |place: usize| Some(ticks.get(place)? / TICKS_PER_SECOND);
        Some(Self {
            stolen: seconds(7)?,
            idle: seconds(3)? + seconds(4)?,
        })
    }
}

/// Seconds of processor time that a process has taken, its threads included.
fn cpu_seconds(process: &str) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program stands in parentheses and may hold anything; what is counted comes behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<f64> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    (ticks.len() == 2).then(|| ticks.iter().sum::<f64>() / TICKS_PER_SECOND)
}

/// Mebibytes of memory that a process has now.
pub fn resident_mib(process: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kib: f64 = value(&status, "VmRSS")?
        .strip_suffix(" kB")?
        .trim()
        .parse()
        .ok()?;
    Some(kib / KIB_PER_MIB)
}

/// So many bytes in mebibytes.
#[expect(clippy::cast_precision_loss, reason = "a file is far smaller than 2^52 bytes")]
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1_024.0 * KIB_PER_MIB)
}

/// What stands behind a name and a colon.
fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = text.lines();
    lines.find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_machine_and_this_process_are_known() {
        let machine = Machine::here();
        assert!(machine.cores > 0);
        assert!(machine.to_string().contains("Linux"), "{machine}");
        assert!(resident_mib(std::process::id()).unwrap() > 1.0);
        assert_eq!(resident_mib(u32::MAX), None);
    }

    #[test]
    fn what_is_taken_is_counted() {
        let clock = CpuClock::start(Some(std::process::id()));
        let begin = Instant::now();
        // Until the clock of the kernel, which has ticks of ten milliseconds, has seen some of it.
        while cpu_seconds("self") < clock.generator_before.map(|before| before + 0.05) {}
        let cpu = clock.stop(begin.elapsed());
        assert!(cpu.generator_cores.unwrap() > 0.0);
        assert!(cpu.gateway_cores.unwrap() > 0.0);
        assert!(cpu.stolen_cores.is_some() && cpu.idle_cores.is_some());
        assert_eq!(CpuClock::start(None).stop(begin.elapsed()).gateway_cores, None);
    }

    #[test]
    fn what_was_stolen_is_read_from_the_line_of_all_cores() {
        let stat = "cpu  1000 20 300 4000 500 0 60 250 7 0\n\
                    cpu0 500 10 150 2000 250 0 30 125 7 0\n\
                    intr 1 2 3\n";
        assert_eq!(
            NotHad::parse(stat),
            Some(NotHad {
                stolen: 2.5,
                idle: 45.0
            })
        );
    }

    #[test]
    fn what_was_stolen_is_not_known_where_it_is_not_told() {
        for stat in [
            "",
            "intr 1 2 3\n",
            "cpu0 1 2 3 4 5 6 7 8 9 10\n",
            // As kernels of long ago had it.
            "cpu  1 2 3 4 5 6 7\n",
            "cpu  1 2 3 4 5 6 7 many\n",
        ] {
            assert_eq!(NotHad::parse(stat), None, "{stat}");
        }
        let unknown = Cpu {
            generator_cores: Some(0.25),
            gateway_cores: None,
            stolen_cores: None,
            idle_cores: None,
        };
        assert_eq!(
            unknown.to_string(),
            "generator 0.25 cores, gateway unknown; stolen unknown, idle unknown"
        );
    }
}
