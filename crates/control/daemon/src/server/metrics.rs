//! Metrics for Prometheus: the modules of the caller, and for the operator the sources, too.

use super::App;
use super::extract::{Authenticated, Refusal, working};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use flame_api::{Code, Problem, QueueAccount, State as ModuleState};
use flame_plan::{Audience, Shed, Unsent};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::Arc;

type Labels = Vec<(&'static str, String)>;

/// Families of metrics, filled for one reply.
#[derive(Default)]
struct Metrics(Registry);

impl Metrics {
    fn counters(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, u64)>) {
        let family = Family::<Labels, Counter>::default();
        for (labels, n) in values {
            family.get_or_create(&labels).inc_by(n);
        }
        self.0.register(name, help, family);
    }

    fn gauges(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, u64)>) {
        let family = Family::<Labels, Gauge>::default();
        for (labels, n) in values {
            family.get_or_create(&labels).set(n as i64);
        }
        self.0.register(name, help, family);
    }
}

/// Metrics in the text format of OpenMetrics, which Prometheus reads
#[utoipa::path(get, path = "/metrics",
    responses((status = 200, description = "Metrics", content_type = "application/openmetrics-text"),
        (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn metrics(
    State(app): State<Arc<App>>,
    Authenticated(caller, _): Authenticated,
) -> Result<Response, Refusal> {
    let of_work = caller.clone();
    let gathered = move |engine: &crate::Engine| {
        let permitted = engine.permitted(&of_work);
        let failed = || Problem::new(Code::Internal, "metrics could not be gathered", "report this");
        gather(engine, permitted.as_deref(), of_work.audience()).ok_or_else(failed)
    };
    let text = working(&app, caller.tenant().as_deref(), gathered).await?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT))], text).into_response())
}

/// The content type of the text.
pub(super) const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the text for an audience: of some modules, or of all.
pub(super) fn gather(
    engine: &crate::Engine,
    of: Option<&[crate::life::Key]>,
    audience: Audience,
) -> Option<String> {
    let modules = engine.list(of, audience);
    let label = |m: &flame_api::Module| -> Labels {
        let principal = m.principal.clone().unwrap_or_default();
        vec![("module", m.name.clone()), ("principal", principal), ("source", m.source.clone())]
    };
    let mut metrics = Metrics::default();
    let each =
        |of: fn(&flame_api::Module) -> u64| modules.iter().map(|m| (label(m), of(m))).collect::<Vec<_>>();
    metrics.gauges(
        "flame_module_running",
        "Whether the module runs",
        each(|m| u64::from(m.state == ModuleState::Running)),
    );
    metrics.counters("flame_module_packets_offered", "Packets of the source", each(|m| m.account.offered));
    metrics.counters(
        "flame_module_packets_processed",
        "Packets that the module saw",
        each(|m| m.account.processed),
    );
    metrics.counters(
        "flame_module_packets_filtered",
        "Packets outside its view",
        each(|m| m.account.filtered),
    );
    // A counter that begins with its first packet would have no rate then.
    let causes = |m: &flame_api::Module, counts: &BTreeMap<String, u64>, names: &[&'static str]| {
        let count = |name: &&str| counts.get(*name).copied().unwrap_or(0);
        let row = |name: &&str| ([label(m), vec![("cause", String::from(*name))]].concat(), count(name));
        names.iter().map(row).collect::<Vec<_>>()
    };
    let shed = Shed::ALL.map(Shed::name);
    let shed = modules.iter().flat_map(|m| causes(m, &m.account.shed, &shed));
    metrics.counters("flame_module_packets_shed", "Packets that did not reach it, by cause", shed);
    let queued = modules.iter().flat_map(|m| {
        let of = move |queue: &QueueAccount| {
            let named = vec![("queue", queue.name.clone())];
            [("processed", queue.processed), ("overrun", queue.overrun)].map(|(outcome, packets)| {
                ([label(m), named.clone(), vec![("outcome", outcome.to_owned())]].concat(), packets)
            })
        };
        m.account.queues.iter().flat_map(of)
    });
    metrics.counters("flame_module_queue_packets", "Packets of its event queues, by outcome", queued);
    metrics.counters("flame_module_records", "Records", each(|m| m.account.records));
    metrics.counters("flame_module_frames_sent", "Frames sent on channels", each(|m| m.account.sent));
    let unsent = Unsent::ALL.map(Unsent::name);
    let unsent = modules.iter().flat_map(|m| causes(m, &m.account.unsent, &unsent));
    metrics.counters("flame_module_frames_unsent", "Frames of channels that were not sent, by cause", unsent);
    metrics.counters("flame_module_calls", "Calls of services", each(|m| m.account.calls));
    let lost = each(|m| m.account.calls_lost);
    metrics.counters("flame_module_calls_lost", "Calls of services that were not let out", lost);
    metrics.counters("flame_module_replies", "Replies of its services", each(|m| m.account.replies));
    let lost = each(|m| m.account.replies_lost);
    metrics.counters("flame_module_replies_lost", "Replies too late or to no call", lost);
    metrics.counters("flame_module_faults", "Instances that a fault ended", each(|m| m.account.faults));
    metrics.counters("flame_module_spool_dropped", "Rows dropped to make room", each(|m| m.spool.dropped));
    metrics.gauges("flame_module_spool_bytes", "Bytes of rows that are kept", each(|m| m.spool.bytes));
    if audience.is_operator() {
        let sources = engine.sources(audience);
        let of = |value: fn(&flame_api::Source) -> u64| {
            sources.iter().map(|s| (vec![("source", s.name.clone())], value(s))).collect::<Vec<_>>()
        };
        metrics.gauges(
            "flame_processes",
            "Processes of principals",
            engine.process_counts().into_iter().map(|(source, now, _)| (vec![("source", source)], now)),
        );
        metrics.counters(
            "flame_process_ends",
            "Processes of principals that ended by themselves or could not be started",
            engine.process_counts().into_iter().map(|(source, _, ended)| (vec![("source", source)], ended)),
        );
        metrics.gauges("flame_source_running", "Whether the source runs", of(|s| u64::from(s.running)));
        metrics.counters("flame_source_packets", "Packets", of(|s| s.packets.unwrap_or(0)));
        metrics.counters("flame_source_bytes", "Captured bytes", of(|s| s.bytes.unwrap_or(0)));
        metrics.counters(
            "flame_source_kernel_drops",
            "Packets dropped by the kernel",
            of(|s| s.kernel_drops.unwrap_or(0)),
        );
    }
    let mut text = String::new();
    encode(&mut text, &metrics.0).ok()?;
    Some(sorted(&text))
}

/// Returns the text with the samples of each family in order: equal values are the same text each time.
fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    for family in lines.split_mut(|line| line.starts_with('#')) {
        family.sort_unstable();
    }
    lines.concat()
}
