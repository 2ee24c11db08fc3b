//! `countersign policy test DIR…`: runs the tests that a team keeps beside its policies, without a gateway.
//!
//! A folder holds `policy.cedar`, `tools.json` and `tests.json`; its name is the name of the policy. A folder without
//! these files is looked through for folders with them. The exit code is 0 only if there were tests and all passed;
//! what is only odd about policies is told beside, on the error stream.

use crate::cli::serve::base_policies;
use crate::config::PolicyTest;
use anyhow::{Context, bail, ensure};
use model::SlashFreeName;
use policy::{Compiler, Diagnostic, Report, Suite, SuiteTexts, TenantPolicy};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What a folder with tests has in it.
const TESTS: &str = "tests.json";
/// The policies of a folder.
const POLICY: &str = "policy.cedar";
/// What its policies speak of.
const TOOLS: &str = "tools.json";

/// Runs the tests of every folder, and fails if one fails.
pub fn run(options: &PolicyTest) -> anyhow::Result<()> {
    let compiler = Compiler::new(base_policies(options.policies.as_deref())?);
    let mut folders = Vec::new();
    for folder in &options.folders {
        let found = folders_in(folder)?;
        ensure!(
            !found.is_empty(),
            "`{}` holds no `{TESTS}`, and none of its folders does",
            folder.display()
        );
        folders.extend(found);
    }
    let (mut passed, mut failed) = (0, 0);
    for folder in &folders {
        let report = test(&compiler, folder).with_context(|| folder.display().to_string())?;
        write(folder, &report)?;
        let good = report.results.iter().filter(|result| result.passed()).count();
        passed += good;
        failed += report.results.len() - good;
    }
    writeln!(std::io::stdout(), "{passed} passed, {failed} failed")?;
    ensure!(passed + failed > 0, "there was no test to run");
    if failed > 0 {
        bail!("{failed} tests failed");
    }
    Ok(())
}

/// The folder itself if it has tests, otherwise those of its folders that have.
fn folders_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if folder.join(TESTS).is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.join(TESTS).is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn test(compiler: &Compiler, folder: &Path) -> anyhow::Result<Report> {
    // The name of `.` is that of the folder it stands for.
    let full = folder.canonicalize()?;
    let name = full
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let name = SlashFreeName::new(name).context("the folder's name is the policy's")?;
    let policy = TenantPolicy::new(name, read(folder, POLICY)?);
    let (tools, tests) = (read(folder, TOOLS)?, read(folder, TESTS)?);
    let suite = SuiteTexts {
        policies: std::slice::from_ref(&policy),
        tools: &tools,
        tests: &tests,
    };
    let suite = Suite::new(compiler, suite)?;
    for warning in suite.warnings() {
        // Whoever does not read it loses no test by that.
        let _ = warn(folder, warning);
    }
    Ok(suite.run())
}

fn warn(folder: &Path, warning: &Diagnostic) -> std::io::Result<()> {
    let mut err = std::io::stderr().lock();
    writeln!(err, "warning {}: {warning}", folder.display())?;
    if let Some(help) = &warning.help {
        writeln!(err, "         {help}")?;
    }
    Ok(())
}

fn read(folder: &Path, file: &str) -> anyhow::Result<String> {
    let path = folder.join(file);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))
}

fn write(folder: &Path, report: &Report) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for result in &report.results {
        let word = if result.passed() { "ok    " } else { "FAILED" };
        writeln!(out, "{word} {}: {}", folder.display(), result.name)?;
        for difference in &result.differences {
            writeln!(out, "         {difference}")?;
        }
    }
    for id in &report.untested {
        writeln!(
            out,
            "note   {}: `{id}` decided nothing in any test",
            folder.display()
        )?;
    }
    Ok(())
}
