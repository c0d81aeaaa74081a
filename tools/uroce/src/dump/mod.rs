//! `uroce dump`: what a capture holds, packet by packet, and whether each ICRC is right.

mod capture;
mod dissect;
mod fields;
mod json;
mod summary;
mod text;

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use self::capture::Capture;
use self::dissect::{Dissection, Refusal};
use self::summary::Summary;
use crate::output;

/// Show the RoCE v2 packets of a capture file, and whether their ICRC is right
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A pcap file of Ethernet frames or IP packets (LINKTYPE_ETHERNET, RAW, IPV4, IPV6)
    #[arg(value_name = "FILE.pcap")]
    file: PathBuf,
    /// Print JSON: one object a packet, one a line, the summary last
    #[arg(long)]
    json: bool,
    /// Show every header, and packets that are not RoCE v2
    #[arg(short, long)]
    verbose: bool,
}

const EXAMPLES: &str = "\
The exit status is 1 when an ICRC is wrong.

Examples:
  tcpdump -i eth0 -w capture.pcap udp port 4791
  uroce dump capture.pcap
  uroce dump -v capture.pcap
  uroce dump --json capture.pcap | jq 'select(.icrc == \"wrong\")'";

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut capture = Capture::open(&arguments.file)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut summary = Summary::default();
    while let Some(frame) = capture.next_frame()? {
        let dissection = Dissection::of(&frame);
        summary.add(&dissection);
        output::check(print(&mut out, arguments, &dissection))?;
    }
    let end = if arguments.json { writeln!(out, "{}", json::summary(&summary)) } else { write!(out, "{summary}") };
    output::check(end.and_then(|()| out.flush()))?;
    Ok(if summary.wrong_icrcs() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(out: &mut impl Write, arguments: &Arguments, dissection: &Dissection<'_>) -> std::io::Result<()> {
    if arguments.json {
        writeln!(out, "{}", json::packet(dissection))
    } else if arguments.verbose {
        text::headers(out, dissection)
    } else if matches!(dissection.verdict, Err(Refusal::Other(_))) {
        Ok(())
    } else {
        text::line(out, dissection)
    }
}
