use crate::caller::Caller;
use crate::console::{complain, say, say_json};
use crate::error::Error;
use crate::exit::Status;
use crate::files::read_module;
use crate::format::OutputFormat;
use crate::trust_args::{TrustArgs, links, place, signers, told};
use clap::Args;
use flame_abi::Descriptor;
use flame_source::{FileOptions, Next, RawBlock};
use flame_trust::{Grant, Place};
use flame_view::{Misfits, View};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Show the grant that a module would get, who decided each field, and a packet in its view
#[derive(Args)]
pub struct Explain {
    /// A module by name or path
    module: String,

    #[command(flatten)]
    trust: TrustArgs,

    /// Interface on which the module would run, or `file` for captures
    #[arg(short, long, default_value = "file")]
    interface: String,

    /// Show a packet of this capture as it is and as the module would see it
    #[arg(short, long, value_name = "FILE")]
    read: Option<PathBuf>,

    /// Number of the packet, from 1
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    packet: u64,

    /// Format of the output
    #[arg(short, long, default_value = "table")]
    format: OutputFormat,
}

impl Explain {
    pub fn run(self) -> Result<Status, Error> {
        let place = place(&self.interface)?;
        let applicant = self.trust.open(&place)?.ok_or("give the node's policy: --policy FILE")?;
        if self.read.is_some() {
            // The original packet is shown next to the module's view of it.
            Caller::here().may_name("--read", "the operator can show a packet")?;
        }
        let (path, wasm) = read_module(&self.module)?;
        let compiler = crate::compiler::looking()?;
        let compiler = applicant.noting(applicant.compiler(&compiler, &flame_compile::hash_of(&wasm))?);
        let examined = compiler.examine(&wasm).map_err(|e| format!("{}: {e}", path.display()))?;
        let grant = applicant.explain(&examined, &signers(&path, &examined.hash)?).map_err(told)?;
        // Whether the view can be constructed is part of the answer.
        let mut view = View::new(&grant.view(), None)?;
        if matches!(self.format, OutputFormat::Table) {
            let name = &applicant.node.policy().name;
            say!(
                "{} on {name}, {}: principal {}, role {}\n",
                self.module,
                place.name(),
                grant.principal,
                grant.role
            );
        }
        fields(&grant, self.format);
        let files = self.read.as_slice();
        let interface = (place != Place::captures()).then_some(&*self.interface);
        for link in links(interface, files) {
            let Misfits { stated, inherited } = Misfits::of(&grant.view(), link);
            let faults = stated.iter().chain(&inherited);
            faults.for_each(|fault| complain!("flame: note: no packet of this link type is shown: {fault}"));
        }
        match &self.read {
            None => Ok(Status::Done),
            Some(file) => packet(file, self.packet, &mut view, self.format),
        }
    }
}

/// Prints the fields of a grant, with those who decided each.
pub fn fields(grant: &Grant, format: OutputFormat) {
    for (field, value, by) in grant.explain() {
        let by: Vec<_> = by.iter().map(ToString::to_string).collect();
        match format {
            OutputFormat::Json => say_json!({"field": field.name(), "value": value, "decided_by": by}),
            OutputFormat::Table => say!("{:<18} {value:<28} {}", field.name(), by.join(", then ")),
        }
    }
}

fn packet(file: &Path, number: u64, view: &mut View, format: OutputFormat) -> Result<Status, Error> {
    let mut source = flame_source::open(&[file.to_owned()], &FileOptions::default())?;
    let (mut block, mut before) = (RawBlock::default(), 0);
    while let Next::Packets = source.next(&mut block)? {
        let packets = block.packets.len() as u64;
        if before + packets < number {
            before += packets;
            continue;
        }
        let p = block.packets[(number - before - 1) as usize];
        let bytes = &block.data[p.offset as usize..(p.offset + p.cap_len) as usize];
        let decoded = flame_decode::decode(p.link, bytes, p.wire_len, flame_decode::Options::default());
        let d = Descriptor { ts_ns: p.ts_ns, addr: 0, ..decoded };
        let (mut out, mut seen) = ([Descriptor::default()], vec![0; bytes.len() + 64]);
        let written = view.copy(&[d], |_| p.link, bytes, &mut out, &mut seen, 0)?;
        let after = (written.packets > 0).then(|| (out[0], &seen[..written.bytes]));
        match format {
            OutputFormat::Json => {
                let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
                let side = |d: &Descriptor, bytes: &[u8]| json!({"ts_ns": d.ts_ns, "wire_len": d.wire_len, "proto": d.proto, "bytes": hex(bytes)});
                say_json!({"before": side(&d, bytes), "after": after.map(|(d, bytes)| side(&d, bytes))});
            }
            OutputFormat::Table => show(number, (&d, bytes), after),
        }
        return Ok(Status::Done);
    }
    Err(format!("{}: it has {before} packets, and no packet {number}", file.display()).into())
}

/// The number of packet bytes printed on one line.
const WIDTH: usize = 16;

fn show(number: u64, (d, bytes): (&Descriptor, &[u8]), after: Option<(Descriptor, &[u8])>) {
    let Some((seen, shown)) = after else {
        say!("\npacket {number}: not shown (it does not pass select, or is not in the sample)");
        return;
    };
    say!("\npacket {number}{:width$}as the module sees it", "", width = 3 * WIDTH - 4);
    let line = |name: &str, a: String, b: String| say!("  {name:<9}{a:<width$}{b}", width = 3 * WIDTH - 5);
    line("ts_ns", d.ts_ns.to_string(), seen.ts_ns.to_string());
    line("wire_len", d.wire_len.to_string(), seen.wire_len.to_string());
    line("protocol", d.proto.to_string(), seen.proto.to_string());
    line("hash", format!("{:08x}", d.hash), format!("{:08x}", seen.hash));
    for at in (0..bytes.len()).step_by(WIDTH) {
        let hex = |all: &[u8]| {
            let part = all.get(at..(at + WIDTH).min(all.len())).unwrap_or_default();
            part.iter().map(|b| format!("{b:02x} ")).collect::<String>()
        };
        let mark = if hex(bytes) == hex(shown) { ' ' } else { '|' };
        say!("{at:5}  {:<width$}{mark} {}", hex(bytes), hex(shown).trim_end(), width = 3 * WIDTH);
    }
}
