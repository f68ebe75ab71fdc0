use crate::admission_args::AdmissionArgs;
use crate::caller::{self, Caller};
use crate::console::complain;
use crate::error::Error;
use crate::exit::Status;
use crate::files::read_module;
use crate::format::FormatArg;
use crate::output_args::OutputArgs;
use crate::overload_args::OverloadArgs;
use crate::plot::{Plot, PlotArg, Target};
use crate::send_args::SendArgs;
use crate::settings::settings;
use crate::signals::Signals;
use crate::state_file::StateFile;
use crate::table_args::{TableArgs, width_of};
use crate::trust_args::{TrustArgs, links, signers, told};
use crate::write::{Count, Writer};
use crate::{cache, limits, notice, outcome, paths, progress, vlan, written};
use clap::{Args, ValueEnum};
use flame_abi::manifest::duration_ns;
use flame_admit::Protection;
use flame_compile::{Compiler, Payment};
use flame_node::{Applicant, Built, NodeError, Note, RunRequest, Submission, Watch, place_of};
use flame_plan::{
    Account, Audience, Discipline, Expose, Limits, ModulePlan, Plan, Transforms, TrustedFilter, ViewSpec,
};
use flame_record::{CaptureFormat, Clock, LeftOut};
use flame_source::live::{self, Capture, Interface, LiveOptions, Way};
use flame_source::{FileOptions, Source};
use flame_transform::Key;
use flame_trust::{Field, Layer, MachineOption, Origin, Place, Policy};
use flame_worker::{Input, Observer, Options, ShownReport, Worker};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The number of characters of a filter that an error repeats.
const SHOWN_FILTER: usize = 120;

/// Run modules over a capture or a live interface
///
/// Exit status: 0 success; 1 nothing, or not everything, could be done; 2 wrong usage; 3 a capture was
/// damaged, or a file of a folder could not be read (results cover the rest); 4 a module was ended by a
/// fault (the other modules' results are complete); 5 rows were lost, as a line on standard error states;
/// 130 interrupted again, or before the input began. The first Ctrl-C ends a run in order, and everything
/// read so far is reported. Another one, a second or more after the first, ends it at once: records written
/// so far are kept, in files as NAME.RANDOM.partial. SIGHUP and SIGUSR1 complete the files of -o and -w, and
/// the run continues with the next ones.
#[derive(Args)]
pub struct Run {
    /// Modules by name or path, separated by commas: `count,flow,./mine.wasm`. With -w they can be left out:
    /// then the packets that pass FILTER are written. With -w, `tcp` begins FILTER, and the module of that
    /// name is given by its path
    #[arg(value_name = "MODULES", required_unless_present = "write")]
    modules: Option<String>,

    /// Packets to select, in pcap filter syntax: `tcp port 80`
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,

    /// Read captures: files, folders, or - for standard input (pcap, pcapng, also .gz and .zst)
    #[arg(short, long, value_name = "FILE", num_args = 1, required_unless_present = "interface")]
    read: Vec<PathBuf>,

    /// Capture from this interface until Ctrl-C; any stands for all interfaces
    #[arg(short, long, conflicts_with = "read")]
    interface: Option<String>,

    /// Stop after this many packets were read; with -w and no module, after this many were written
    #[arg(short, long)]
    count: Option<u64>,

    /// Maximum number of bytes to read of each packet
    #[arg(short, long, value_name = "BYTES", default_value_t = 262_144)]
    snaplen: u32,

    /// Do not put the interface into promiscuous mode
    #[arg(short = 'p', long)]
    no_promiscuous: bool,

    /// Capture by packet (AF_PACKET, which copies), by xdp (AF_XDP, which takes packets away from this
    /// machine's own stack and from other captures), by xdp-generic (the same, without the driver's part),
    /// or auto: by xdp only where nobody would miss the packets, see `flame help live`
    #[arg(long, value_name = "METHOD", requires = "interface")]
    capture: Option<Capture>,

    /// Use the network card's time stamps instead of the kernel's
    #[arg(long)]
    hardware_timestamps: bool,

    /// Number of workers; both directions of a flow reach the same one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,

    /// Further FILTER; can be repeated, a packet must pass all
    #[arg(long, value_name = "FILTER")]
    select: Vec<String>,

    /// Read a further FILTER from a file, in which # begins a comment. Thousands of hosts and networks that
    /// are joined by `or` are one set, see docs/filters.md
    #[arg(short = 'F', long, value_name = "FILE")]
    filter_file: Option<PathBuf>,

    /// Bytes that modules may see: count, none, headers, payload:N or all [default: headers, or what the
    /// policy grants]
    #[arg(long)]
    expose: Option<Expose>,

    /// Change a field before modules see it: FIELD is mac, ip, port or one side as in ip.src; ACTION
    /// is keep, zero, truncate:BITS, hash or prefix
    #[arg(long, value_name = "FIELD=ACTION", value_delimiter = ',')]
    transform: Vec<String>,

    /// Key for the transforms hash and prefix: a file of 32 bytes or 64 hex digits
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    key: Option<PathBuf>,

    #[command(flatten)]
    trust: TrustArgs,

    /// Decode packets inside tunnels, such as GRE, ERSPAN, VXLAN, GENEVE, GTP-U, L2TP, Teredo and IP in IP
    #[arg(long)]
    decapsulate: bool,

    /// Let modules report once per interval of packet time: 10s, 500ms, 1m
    #[arg(long, value_name = "TIME")]
    interval: Option<String>,

    /// Set a module's parameter (see `flame inspect`); @FILE stands for the file's text, @FOLDER for that of
    /// its files *.rules. Repeated, the texts of all files make one
    #[arg(long, value_name = "MODULE.PARAMETER=VALUE")]
    set: Vec<String>,

    /// Format of records [default: by the extension of -o, or else table]
    #[arg(short, long)]
    format: Option<FormatArg>,

    /// Put a ' before CSV cells that a spreadsheet would evaluate; always done on a terminal
    #[arg(long)]
    guard_formulas: bool,

    /// Write only these tables: TABLE, MODULE.TABLE, or MODULE for all of its tables
    #[arg(long = "table", value_name = "TABLE", value_delimiter = ',')]
    tables: Vec<String>,

    /// Write packets to this file, - for standard output: those that a module emits (`anonymize`), otherwise
    /// those that pass FILTER, whole or as --expose and --transform show them. NAME.pcap is written as pcap,
    /// other names as pcapng
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,

    /// Write times in nanoseconds to a pcap file, as of a capture that has them; pcapng always has them
    #[arg(long, requires = "write")]
    nano: bool,

    #[command(flatten)]
    send: SendArgs,

    #[command(flatten)]
    table_args: TableArgs,

    /// Write records to this file; to a folder, one file per table
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    #[command(flatten)]
    files: OutputArgs,

    /// Draw the plots that modules declare: FILE.svg, FILE.png, or term for the terminal; NAME=FILE draws one
    /// of them, NAME in the terminal
    #[arg(long, value_name = "TARGET", value_parser = PlotArg::parse)]
    plot: Option<PlotArg>,

    /// Draw the records of an earlier run (FILE in JSON) next to those of this one
    #[arg(long, value_name = "FILE", requires = "plot")]
    compare: Option<PathBuf>,

    /// Format of the statistics at the end, on standard error
    #[arg(long, default_value = "table")]
    stats: StatsFormat,

    /// Restart a module after a fault, at most this many times on each worker
    #[arg(long, value_name = "TIMES", default_value_t = 0)]
    restart: u32,

    /// Begin with the state of an earlier run in this file, and write the state at the end to it, for modules
    /// that keep one
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    state: Option<PathBuf>,

    /// Seed of random numbers, for modules that use them [default: a new one, which is stated]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Maximum memory of one instance
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1024))]
    memory: u32,

    /// Maximum work units per packet for modules that request more than the default of 1000000. Other calls,
    /// such as init and ticks, get at most 256 times this limit (`call_budget` in module.toml). Work units
    /// are loop iterations and calls, weighted by their instructions
    #[arg(long, value_name = "UNITS", default_value_t = limits::PACKET_BUDGET)]
    packet_budget: u64,

    /// Meter and preempt all modules, even those with a proven bound
    #[arg(long)]
    metered: bool,

    #[command(flatten)]
    admission: AdmissionArgs,

    #[command(flatten)]
    overload: OverloadArgs,

    /// Run modules in processes of their own, which have no files, no network and no compiler
    #[arg(long, conflicts_with = "unchecked")]
    isolate: bool,

    /// Maximum number of packets in one call of a module
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=256))]
    batch: u16,

    /// Print no progress, no texts of modules and no statistics, only errors
    #[arg(short, long)]
    quiet: bool,

    /// Run without budgets, to measure their cost; a module may then run forever
    #[arg(long, hide = true, conflicts_with_all = ["policy", "metered"])]
    unchecked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StatsFormat {
    Table,
    Json,
    None,
}

impl Run {
    pub fn run(mut self) -> Result<Status, Error> {
        let signals = Signals::new()?;
        let stop = signals.stop();
        let engine = flame_run::Engines::new()?;
        let _opened = self.of_caller()?;
        self.files.check([self.output.as_deref(), self.write.as_deref()])?;
        self.format()?;
        // Unchecked code has no proven bounds.
        if !self.unchecked {
            engine.watchdog().on_cut_off(cache::cut_offs(self.quiet));
        }
        self.settle_modules()?;
        // What is decided about is what is opened, whatever it is called later.
        let interface = self.interface.as_deref().map(Interface::find).transpose()?;
        self.interface = interface.as_ref().map(|interface| interface.name().to_owned());
        let place = interface.as_ref().map_or_else(|| Ok(Place::captures()), place_of)?;
        let applicant = self.trust.open(&place)?;
        let node = applicant.as_ref().map(|applicant| &applicant.node);
        // The only decision: whichever option or machine the policy is of.
        let audience = Audience::under(node);
        if node.is_some() && (self.unchecked || self.key.is_some()) {
            return Err("--unchecked and --key are the operator's, and this runs under a policy".into());
        }
        if let Some(node) = node {
            // `--count` counts all packets of the source, including those that a grant hides.
            if self.count.is_some() {
                return Err("--count counts packets that a grant may hide, and this runs under a policy: leave it out".into());
            }
            // A packet is sampled by its time, and a second clock would show a second sample.
            if self.hardware_timestamps {
                return Err("--hardware-timestamps changes the times by which a grant's samples and intervals are decided, and this runs under a policy: leave it out".into());
            }
            if self.decapsulate && !node.policy().decapsulate {
                return Err("--decapsulate shows headers in what may be hidden payload, and the policy does not let it: decapsulate = true in [node] does".into());
            }
            self.act_on_machine(node.policy())?;
        }
        let Built { mut plan, meters, admitted, entered, notes, .. } = {
            let built = self.build(applicant.as_ref(), stop);
            built.inspect_err(|e| signals.or_end(&e.to_string()))?
        };
        self.overload.apply(&mut plan)?;
        for module in &plan.modules {
            tracing::info!(module = module.name, class = ?module.class, view = ?module.view.expose, "module is ready");
        }
        let is_unnamed = node.is_some() && self.trust.credential.is_none();
        let writes_view = self.writes_view(&plan);
        if writes_view && node.is_some() {
            return Err(
                "-w without a module is the operator's, and this runs under a policy: run anonymize -w FILE"
                    .into(),
            );
        }
        if self.isolate {
            // Modules of one credential share its time and memory, so they share a process.
            let name = |module: &ModulePlan| node.map_or(module.name.clone(), |_| "credential".to_owned());
            plan.modules.iter_mut().for_each(|module| module.process = Some(name(module)));
        }
        if !self.quiet {
            notes.iter().for_each(|note| complain!("flame: note: {note}"));
            self.send.note(&plan).iter().for_each(|note| complain!("flame: note: {note}"));
        }
        let state = self.state.as_ref().map(|path| {
            // What a module keeps may hold all that it saw, whatever its grant lets out.
            match node {
                Some(_) => {
                    Err("--state is the operator's, and this runs under a policy: leave it out".into())
                }
                None => StateFile::open(path, &plan.modules, plan.workers, self.quiet),
            }
        });
        let state = state.transpose()?;
        let secret = node.and_then(|node| node.policy().secret());
        let options = Options {
            decapsulate: self.decapsulate,
            // A writer without modules ends the source itself.
            count: self.count.filter(|_| !(writes_view && plan.modules.is_empty())).unwrap_or(u64::MAX),
            batch: self.batch.into(),
            key: self.key.as_deref().map(Key::from_file).transpose()?,
            dispatch_key: secret.map(|secret| Key::new(secret.derive("dealing key", b""))),
            stop: stop.clone(),
            runner: self.isolate.then(flame_worker::Runner::open).transpose()?,
            sharers: None,
            keeps: state.as_ref().map(StateFile::keeps).unwrap_or_default(),
            areas: Vec::new(),
            link: self.send.link(&plan)?,
        };
        if let Some(Err(e)) = options.link.as_ref().map(|link| link.take_time())
            && !self.quiet
        {
            complain!("flame: note: {e}");
        }
        self.files.stop_in_time(signals.expiry())?;
        // Filters and samples of others are decided on the packet as it is, whatever its holder asks to see.
        let captured = if audience.is_operator() { self.snaplen } else { flame_abi::MAX_PACKET as u32 };
        let mut input = signals.while_opening(|| self.input(interface.as_ref(), captured))?;
        let hint = vlan::Hint::new(&self.view()?.select).filter(|_| audience.is_operator() && !self.quiet);
        if let Some(hint) = &hint {
            input = each_source(input, |source| hint.watch(source))?;
        }
        let key = options.key.clone();
        // What the capture states of times is kept.
        self.nano |= input.is_nano();
        let mut sink = self.sink(&plan)?;
        if !self.quiet && audience.is_operator() {
            let is_shown = self.format()? == flame_record::Format::Table && is_stdout(self.output.as_deref());
            sink = notice::tee(sink, is_shown);
        }
        let plot = self.plot(&plan)?;
        if let Some(plot) = &plot {
            sink = plot.tee(sink);
        }
        sink = signals.guard(sink);
        if writes_view {
            let count = match (self.count, plan.modules.is_empty()) {
                (count, true) => Count::Written(count.unwrap_or(u64::MAX)),
                (count, false) => Count::Read(count.unwrap_or(u64::MAX)),
            };
            let view = ViewSpec { expose: self.expose.unwrap_or(Expose::All), ..self.view()? };
            let mut writer =
                Some(Writer::new(&view, key.as_ref(), self.decapsulate, count, signals.packets())?);
            let workers = "-w: one worker alone keeps packets in order: --workers 1";
            input = each_source(input, |source| Ok(writer.take().ok_or(workers)?.tee(source)))?;
        }
        let console = progress::Console::new(audience, self.quiet);
        let observer: Box<dyn Observer> = Box::new(console);
        let run = flame_worker::Run::new(&plan, &meters, &engine, options)?.overload(self.overload.overload);
        // Before packets flow: the policy may have changed while modules were compiled.
        let warn = |text: &str| complain!("flame: warning: {text}");
        let watch = node.map(|node| Watch::start(node.clone(), admitted, run.handle(), warn));
        let ended = Worker::spawn(run, input, sink, observer)?.join();
        drop(watch);
        let (report, sink) = ended?;
        // Whatever fails, the records are completed and the account is printed.
        let audited = entered.iter().try_for_each(|module| {
            let of = |name: &str| name == module.name;
            let faults: Vec<_> =
                report.faults.iter().filter(|f| of(&f.module)).map(|f| f.text.clone()).collect();
            match report.accounts.iter().find(|(name, _)| of(name)) {
                Some((_, account)) => module.ended(&faults, account),
                None => Ok(()),
            }
        });
        let finished = sink.finish();
        let kept = state.map_or(Ok(()), |state| state.write());
        let drawn = plot.filter(|_| finished.is_ok()).map_or(Ok(()), |plot| plot.draw());
        self.print_report(report.shown_to(audience))?;
        audited?;
        finished?;
        kept?;
        drawn?;
        if let Some(text) = hint.and_then(|hint| hint.text()) {
            complain!("flame: note: {text}");
        }
        let gave = |(_, account): &(String, Account)| account.records + account.written > 0;
        // Without any row, the reason is a part of the result.
        if self.quiet && !report.accounts.iter().any(gave) {
            let reasons = notes.iter().filter(|note| matches!(note, Note::Reduced(_) | Note::Misfit { .. }));
            reasons.for_each(|note| complain!("flame: note: no rows: {note}"));
        }
        if is_unnamed && !self.quiet && !report.accounts.iter().any(gave) {
            complain!(
                "flame: note: nothing was given: without a credential, modules have the rights of [best-effort] \
                 in the policy, by default packet counts: --credential FILE presents one (see `flame explain`)"
            );
        }
        match report.failed {
            Some(reason) => Err(reason.into()),
            None => Ok(outcome::status(&report)),
        }
    }

    /// Returns an error for options that would give a caller with the node's rights access to more than the
    /// caller's own files, and opens the files to read.
    fn of_caller(&mut self) -> Result<Vec<File>, Error> {
        let caller = Caller::here();
        let file = |path: &PathBuf| path.as_os_str() != "-";
        if self.output.as_ref().is_some_and(file)
            || self.write.as_ref().is_some_and(file)
            || matches!(self.plot, Some(PlotArg { target: Target::File(..), .. }))
        {
            caller.may_name("-o, -w or --plot with a FILE", "leave it out and redirect: > FILE")?;
        }
        self.send.check(caller)?;
        if self.state.is_some() {
            caller.may_name("--state", "run without it")?;
        }
        if self.compare.is_some() {
            caller.may_name("--compare", "draw from records of your own: flame run --format json > FILE")?;
        }
        let mut opened = Vec::new();
        if matches!(caller, Caller::Through { .. }) {
            // The opened file is read, since another file may have its name by then.
            for path in self.read.iter_mut().filter(|path| file(path)) {
                let file = caller::open(path)?;
                *path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
                opened.push(file);
            }
        }
        Ok(opened)
    }

    /// Takes the first word as part of the filter if it names no module, or is a filter by itself, as `tcp`:
    /// `run -r IN -w OUT tcp port 80` writes no packets of other protocols.
    fn settle_modules(&mut self) -> Result<(), Error> {
        if let Some(path) = self.filter_file.take() {
            let (mut text, most) = (String::new(), flame_plan::MAX_FILTER);
            let read = caller::open(&path)?.take(most as u64 + 1).read_to_string(&mut text);
            read.map_err(|e| format!("-F {}: {e}", path.display()))?;
            if text.len() > most {
                let place = path.display();
                return Err(format!("-F {place}: more than {most} bytes: split it over several runs").into());
            }
            let lines: Vec<&str> = text.lines().filter_map(|line| line.split('#').next()).collect();
            self.select.push(lines.join(" ").trim().to_owned());
        }
        let is_module = |given: &str| paths::is_path(given) || paths::module(given).is_ok();
        let is_filter = |modules: &String| {
            !modules.split(',').any(is_module)
                || (!paths::is_path(modules) && TrustedFilter::parse(modules).is_ok())
        };
        if self.write.is_some()
            && let Some(word) = self.modules.take_if(|modules| is_filter(modules))
        {
            self.filter.insert(0, word.clone());
            TrustedFilter::parse(&self.filter.join(" ")).map_err(|e| {
                format!("{word:?} is no module (see `flame modules`) and begins no filter: {e}")
            })?;
        }
        Ok(())
    }

    /// Returns whether the packets of the view are written, because no module writes packets.
    fn writes_view(&self, plan: &Plan) -> bool {
        self.write.is_some() && !plan.modules.iter().any(|module| module.manifest.packets)
    }

    /// Builds the run, under the node's policy if there is one.
    fn build(&self, applicant: Option<&Applicant>, stop: &Arc<AtomicBool>) -> Result<Built, Error> {
        let child = flame_compile::Worker::this_program().stopped_by(stop.clone());
        let compiler = Compiler::new(child, cache::open(self.quiet))
            .paid(Payment::Later(Box::new(crate::compiler::waiting(stop.clone()))));
        let time_limit = self.admission.packet_time_limit(self.interface.as_deref(), self.snaplen.into())?;
        // Only a time limit needs estimates.
        let costs = match time_limit {
            Some(_) => Some(crate::costs::load_or_calibrate(&flame_compile::Engines::new()?, self.quiet)?),
            None => None,
        };
        let request = RunRequest {
            submissions: self.given().map(submission).collect::<Result<_, _>>()?,
            workers: self.workers.into(),
            interval_ns: self.interval_ns()?,
            discipline: if self.interface.is_some() { Discipline::Link } else { Discipline::File },
            // Without a policy, the packets themselves show which filter does not apply to them.
            links: applicant.map(|_| links(self.interface.as_deref(), &self.read)).unwrap_or_default(),
            view: self.view()?,
            // A grant is narrowed. Without a policy, `view` has the filters.
            narrower: applicant.map_or(Ok(Vec::new()), |_| self.narrower())?,
            settings: settings(&self.set)?,
            restarts: self.restart,
            limits: Limits { memory: self.memory << 20, ..limits::with_budget(self.packet_budget) },
            protection: match () {
                () if self.unchecked => Protection::Unchecked,
                () if self.metered => Protection::Metered,
                () => Protection::Auto,
            },
            costs,
            time_limit: time_limit.map(|limit| (limit, self.admission.limit(limit))),
            seed: self.seed,
        };
        match flame_node::build(&request, applicant, &compiler) {
            Ok(built) => Ok(built),
            Err(NodeError::UnusedSettings(name)) => {
                Err(format!("--set {name}.…: no such module in this run").into())
            }
            Err(e) => Err(told(e)),
        }
    }

    fn interval_ns(&self) -> Result<u64, Error> {
        self.interval.as_deref().map_or(Ok(0), |text| read_interval("--interval", text))
    }

    /// Returns the layers by which the command line narrows a grant.
    fn narrower(&self) -> Result<Vec<Layer>, Error> {
        let mut stated: Vec<(Field, String)> = Vec::new();
        stated.extend(self.selected().into_iter().map(|filter| (Field::Select, filter)));
        stated.extend(self.expose.map(|expose| (Field::Expose, expose.to_string())));
        stated.extend(self.transform.iter().map(|text| (Field::Transform, text.clone())));
        let layer = |(field, value)| Layer::new(Origin::Command, field, value);
        Ok(stated.into_iter().map(layer).collect::<Result<_, _>>()?)
    }

    /// Returns FILTER and the values of `--select`.
    fn selected(&self) -> Vec<String> {
        let mut select = self.select.clone();
        if !self.filter.is_empty() {
            select.push(self.filter.join(" "));
        }
        select
    }

    fn given(&self) -> impl Iterator<Item = &str> {
        self.modules.iter().flat_map(|modules| modules.split(',')).filter(|given| !given.is_empty())
    }

    fn view(&self) -> Result<ViewSpec, Error> {
        let mut transforms = Transforms::new();
        for text in &self.transform {
            transforms.extend(flame_transform::parse(text).map_err(|e| format!("--transform {e}"))?);
        }
        let expose = self.expose.unwrap_or_default();
        let mut select = Vec::new();
        for text in self.selected() {
            let begin = || text.chars().take(SHOWN_FILTER).collect::<String>();
            let filter = TrustedFilter::parse(&text);
            select.extend(filter.map_err(|e| format!("filter {:?}: {e}", begin()))?);
        }
        // The source cuts packets there, so that they need no more time than packets of this length.
        Ok(ViewSpec { select, expose, transforms, snaplen: self.snaplen, ..ViewSpec::default() })
    }

    /// Checks that the policy permits the options that act on the machine. Promiscuous mode, which is a
    /// default, is left out otherwise.
    fn act_on_machine(&mut self, policy: &Policy) -> Result<(), Error> {
        if let Some(capture) = self.capture.filter(|capture| *capture != Capture::Packet) {
            policy.permits(MachineOption::Xdp, &format!("--capture {}", capture.name()))?;
        }
        if let Some(interface) = self.send.interface() {
            policy.permits(MachineOption::Send, &format!("--send {interface}"))?;
        }
        let is_one = self.interface.as_deref().is_some_and(|name| name != Place::all_interfaces().name());
        let is_promiscuous = !self.no_promiscuous && is_one;
        if is_promiscuous && policy.permits(MachineOption::Promiscuous, "-i").is_err() {
            self.no_promiscuous = true;
            if !self.quiet {
                complain!(
                    "flame: note: the interface is not promiscuous: options = [\"promiscuous\"] in [node] of the \
                     policy lets it be (-p leaves out this note)"
                );
            }
        }
        Ok(())
    }

    /// Opens the source, which captures each packet up to `captured` bytes.
    fn input(&self, interface: Option<&Interface>, captured: u32) -> Result<Input, Error> {
        tracing::info!(interface = self.interface, files = ?self.read, workers = self.workers, "packets are read");
        let Some(interface) = interface else {
            if !self.quiet {
                self.read.iter().for_each(|path| note_folders(path));
            }
            let options = FileOptions { snaplen: captured };
            return Ok(Input::Shared(flame_source::open(&self.read, &options)?));
        };
        let workers = self.workers;
        let options = LiveOptions {
            promiscuous: !self.no_promiscuous,
            snaplen: captured,
            hardware_timestamps: self.hardware_timestamps,
            ..LiveOptions::default()
        };
        // Packets are counted over all workers, so a count needs one source.
        let sources = if self.count.is_some() { 1 } else { workers };
        let opened = live::open_by(self.capture.unwrap_or_default(), interface, &options, sources.into())?;
        let (way, interface) = (opened.way, interface.name());
        let reason = opened.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        tracing::info!("interface {interface} is captured by {way}{reason}");
        if self.capture == Some(Capture::Auto) && way == Way::Packet && !self.quiet {
            complain!("flame: note: interface {interface} is captured by {way}{reason}");
        }
        Ok(Input::of(opened.sources))
    }

    fn format(&self) -> Result<flame_record::Format, flame_record::SinkError> {
        crate::format::of(self.format, self.output.as_deref())
    }

    fn sink(&self, plan: &Plan) -> Result<Box<dyn flame_record::Sink>, Error> {
        let live = self.interface.is_some() || self.interval.is_some();
        let tables = self.tables.clone();
        let guard_formulas = self.guard_formulas.then_some(true);
        let time = self.files.time();
        let options =
            flame_record::Options { tables, live, guard_formulas, time, ..flame_record::Options::default() };
        let options = self.table_args.apply(options, self.output.as_deref());
        let (format, output, catalog) = (self.format()?, self.output.as_deref(), plan.catalog());
        let has_tables = plan.modules.iter().any(|module| !module.manifest.tables.is_empty());
        if has_tables && is_stdout(output) && self.write.is_some() && is_stdout(self.write.as_deref()) {
            return Err("-w - and records would both go to standard output: add -o FILE".into());
        }
        if let Some(left_out) = flame_record::left_out(format, output, &catalog, &options)
            && !self.quiet
        {
            left_out_note(&left_out);
        }
        let records = self.files.records(format, output, (&catalog, &options), &self.read)?;
        let writes: Vec<_> = plan.modules.iter().filter(|m| m.manifest.packets).collect();
        match (&self.write, writes.first()) {
            (None, None) => Ok(records),
            (None, Some(m)) => Err(format!("{} writes packets: give -w FILE", m.name).into()),
            (Some(_), None) => self.capture(records),
            (Some(_), Some(m)) if plan.workers > 1 => {
                Err(format!("{} writes packets, which one worker alone keeps in order: --workers 1", m.name)
                    .into())
            }
            (Some(_), Some(_)) if writes.len() > 1 => Err(format!(
                "-w FILE: {} and {} both write packets: run them in two commands",
                writes[0].name, writes[1].name
            )
            .into()),
            (Some(_), Some(_)) => self.capture(records),
        }
    }

    /// Returns a sink that writes packets to the file of `-w`, and records to `records`.
    fn capture(&self, records: Box<dyn flame_record::Sink>) -> Result<Box<dyn flame_record::Sink>, Error> {
        let Some(path) = &self.write else { return Ok(records) };
        let format = CaptureFormat::of(path, self.nano);
        let clock = if self.interface.is_some() { Clock::Machine } else { Clock::Packets };
        let packets = self.files.packets(path, clock, move |path| flame_record::packets(path, format))?;
        let told = !self.quiet && self.stats == StatsFormat::Table;
        let packets = if told { written::count(packets, path) } else { packets };
        Ok(flame_record::beside(records, packets))
    }

    fn plot(&self, plan: &Plan) -> Result<Option<Plot>, Error> {
        let Some(plot) = &self.plot else { return Ok(None) };
        if matches!(plot.target, Target::Terminal)
            && is_stdout(self.output.as_deref())
            && self.format()? != flame_record::Format::Table
        {
            return Err("--plot term and records would both go to standard output: add -o FILE".into());
        }
        let modules = plan.modules.iter().map(|m| (m.name.as_str(), Some(&*m.manifest)));
        Plot::new(plot, modules, self.compare.as_deref()).map(Some)
    }

    /// Prints faults and the account of all packets on standard error.
    fn print_report(&self, report: ShownReport) -> Result<(), Error> {
        outcome::print(&report);
        if !self.quiet {
            outcome::print_undue(&report);
        }
        if self.quiet || self.stats == StatsFormat::None {
            return Ok(());
        }
        let stderr = std::io::stderr().lock();
        let written = match self.stats {
            StatsFormat::Json => flame_record::account::json(stderr, &report.totals),
            _ => flame_record::account::table(stderr, &report.totals, width_of(&std::io::stderr())),
        };
        match written {
            // The statistics are not read, which changes nothing in the results.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }
}

/// Returns whether an option's path stands for standard output.
fn is_stdout(path: Option<&Path>) -> bool {
    path.is_none_or(|path| path.as_os_str() == "-")
}

/// Reports the tables that an output of one table leaves out.
pub fn left_out_note(tables: &LeftOut) {
    complain!(
        "flame: note: only {} is written; left out: {} (--table chooses, -o FOLDER or --format json has all)",
        tables.written,
        tables.left.join(", ")
    );
}

/// Replaces each source of an input.
fn each_source(
    input: Input,
    mut map: impl FnMut(Box<dyn Source>) -> Result<Box<dyn Source>, Error>,
) -> Result<Input, Error> {
    Ok(match input {
        Input::Shared(source) => Input::Shared(map(source)?),
        Input::PerWorker(sources) => {
            Input::PerWorker(sources.into_iter().map(map).collect::<Result<_, _>>()?)
        }
    })
}

/// Reads the time of the option `name`.
pub fn read_interval(name: &str, text: &str) -> Result<u64, Error> {
    match duration_ns(text) {
        Ok(ns) if ns > 0 => Ok(ns as u64),
        Ok(_) => Err(format!("{name} {text}: must be longer than 0").into()),
        Err(reason) => Err(format!("{name} {reason}").into()),
    }
}

/// Reads a module given by name or path, with its signatures.
pub fn submission(given: &str) -> Result<Submission, Error> {
    let (path, wasm) = read_module(given)?;
    let file = path.display().to_string();
    let name = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    tracing::info!(module = name, %file, bytes = wasm.len(), "module is read");
    let signers = signers(&path, &flame_compile::hash_of(&wasm)).map_err(|e| format!("{file}: {e}"))?;
    Ok(Submission { name, file, wasm, signers })
}

/// Prints a note about folders within a folder of captures, which are not read.
fn note_folders(path: &Path) {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut folders: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    if let [first, rest @ ..] = &folders[..] {
        let more = if rest.is_empty() { String::new() } else { format!(" and {} others", rest.len()) };
        complain!(
            "flame: note: {}{more}: folders in folders are not read; -r {0} reads one",
            first.display()
        );
    }
}
