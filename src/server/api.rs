//! The operators' API: JSON over HTTP, on a loopback address unless told otherwise.
//!
//! | | |
//! |---|---|
//! | `GET /api/workers` | all live workers, or with `?where=` those of a [`Selector`] ([`WorkersReply`]) |
//! | `GET /api/stats` | the sums ([`StatsReply`]) |
//! | `POST /api/signal` | tells workers a state ([`SignalRequest`] → [`SignalReply`]) |
//! | `POST /api/cordon` | cordons workers, or lifts that ([`CordonRequest`] → [`CordonReply`]) |
//!
//! An error is `{"error": "…"}` with a status that fits. With a password set, every request needs it (HTTP basic
//! authentication, any user name). A request that names another host than a loopback one or the address listened on is refused, so
//! that a page in an operator's browser cannot reach the API by a name of its own; and a body must be declared as JSON,
//! which a page of another origin cannot do unasked.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::Listener;
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use super::Shared;
use crate::selector::{Selector, SelectorError};
use crate::state::WorkerState;
use crate::worker::WorkerInfo;

/// One live worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "named as in `WorkerInfo`; ages are in milliseconds")]
pub struct WorkerReply {
    pub wid: String,
    pub incarnation: u64,
    pub hostname: String,
    pub pid: Option<i64>,
    pub labels: Vec<String>,
    pub state: String,
    pub health: String,
    pub cordoned: bool,
    pub age_ms: u64,
    pub connected_for_ms: u64,
    pub connections: u32,
    pub rss_kb: Option<u64>,
    pub beats: u64,
    #[serde(default)]
    pub leases: u32,
}

impl From<&WorkerInfo> for WorkerReply {
    fn from(worker: &WorkerInfo) -> Self {
        let ms = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        WorkerReply {
            wid: worker.wid().to_string(),
            incarnation: worker.incarnation().get(),
            hostname: worker.hostname().to_owned(),
            pid: worker.pid(),
            labels: worker.labels().map(str::to_owned).collect(),
            state: worker.state().to_string(),
            health: worker.health().to_string(),
            cordoned: worker.is_cordoned(),
            age_ms: ms(worker.age()),
            connected_for_ms: ms(worker.connected_for()),
            connections: worker.connections(),
            rss_kb: worker.rss_kb(),
            beats: worker.beats(),
            leases: worker.leases(),
        }
    }
}

/// All live workers, in the order in which they joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkersReply {
    /// The workers.
    pub workers: Vec<WorkerReply>,
}

/// The sums of the registry and of the job store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "named as in `Stats` and `Counts`; `refused` counts connections turned away or cut off"
)]
pub struct StatsReply {
    pub running: usize,
    pub quiet: usize,
    pub terminate: usize,
    pub connections: usize,
    pub joined: u64,
    pub left: u64,
    pub expired: u64,
    pub superseded: u64,
    pub remembered: usize,
    pub not_remembered: u64,
    pub gaps: u64,
    #[serde(default)]
    pub refused: u64,
    pub jobs_enqueued: usize,
    pub jobs_scheduled: usize,
    pub jobs_retries: usize,
    pub jobs_working: usize,
    pub jobs_dead: u64,
    pub jobs_processed: u64,
    pub jobs_failures: u64,
    pub jobs_stale: u64,
}

/// Whom a request is about. Exactly one of the three is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whom {
    /// One worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wid: Option<String>,
    /// The workers of a [`Selector`], in its text form.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Every worker.
    #[serde(default)]
    pub all: bool,
}

/// Tells workers a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalRequest {
    /// Which.
    #[serde(flatten)]
    pub whom: Whom,
    /// `quiet` or `terminate`.
    pub state: String,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SignalReply {
    /// How many workers were told.
    pub told: usize,
    /// The state of the one worker that was named, from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// Cordons workers, or lifts that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CordonRequest {
    /// Which.
    #[serde(flatten)]
    pub whom: Whom,
    /// Which of the two.
    pub cordoned: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CordonReply {
    /// For how many workers it was otherwise before.
    pub changed: usize,
}

/// [`Whom`], understood.
enum Target {
    Wid(String),
    Selected(Selector),
}

impl Whom {
    fn target(self) -> Result<Target, Refusal> {
        match (self.wid, self.selector, self.all) {
            (Some(wid), None, false) => Ok(Target::Wid(wid)),
            (None, Some(text), false) => Ok(Target::Selected(selector(&text)?)),
            (None, None, true) => Ok(Target::Selected(Selector::all())),
            _ => Err(Refusal::bad("say one of wid, where and all")),
        }
    }
}

fn selector(text: &str) -> Result<Selector, Refusal> {
    text.parse().map_err(|error: SelectorError| Refusal::bad(format!("where: {}", error.render(text))))
}

struct Refusal(StatusCode, String);

impl Refusal {
    fn bad(what: impl Into<String>) -> Self {
        Refusal(StatusCode::BAD_REQUEST, what.into())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(serde_json::json!({ "error": self.1 }))).into_response()
    }
}

/// Serves until the server stops.
pub(super) async fn serve<L>(listener: L, shared: Arc<Shared>) -> io::Result<()>
where
    L: Listener<Addr: std::fmt::Debug>,
{
    let mut stopping = shared.stopping.clone();
    let routes = Router::new()
        .route("/api/workers", get(workers))
        .route("/api/stats", get(stats))
        .route("/api/signal", post(signal))
        .route("/api/cordon", post(cordon))
        .fallback(|| async { Refusal(StatusCode::NOT_FOUND, "no such path".into()) })
        .layer(middleware::from_fn_with_state(shared.clone(), admit))
        .with_state(shared);
    let stopped = async move {
        let _ = stopping.wait_for(|&stopping| stopping).await;
    };
    axum::serve(listener, routes).with_graceful_shutdown(stopped).await
}

#[derive(Deserialize)]
struct WorkersQuery {
    #[serde(rename = "where")]
    selector: Option<String>,
}

async fn workers(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<WorkersQuery>, QueryRejection>,
) -> Result<Json<WorkersReply>, Refusal> {
    let Query(query) = query.map_err(|rejection| Refusal(rejection.status(), rejection.body_text()))?;
    let workers = match query.selector {
        None => shared.registry.snapshot().workers().iter().map(WorkerReply::from).collect(),
        Some(text) => shared.registry.select(&selector(&text)?).iter().map(WorkerReply::from).collect(),
    };
    Ok(Json(WorkersReply { workers }))
}

async fn stats(State(shared): State<Arc<Shared>>) -> Json<StatsReply> {
    let stats = shared.registry.stats();
    let jobs = shared.store.counts();
    Json(StatsReply {
        running: stats.running,
        quiet: stats.quiet,
        terminate: stats.terminate,
        connections: stats.connections,
        joined: stats.joined,
        left: stats.left,
        expired: stats.expired,
        superseded: stats.superseded,
        remembered: stats.remembered,
        not_remembered: stats.not_remembered,
        gaps: stats.gaps,
        refused: shared.refusals.all(),
        jobs_enqueued: jobs.enqueued,
        jobs_scheduled: jobs.scheduled,
        jobs_retries: jobs.retries,
        jobs_working: jobs.working,
        jobs_dead: jobs.dead,
        jobs_processed: jobs.processed,
        jobs_failures: jobs.failures,
        jobs_stale: jobs.stale,
    })
}

async fn signal(
    State(shared): State<Arc<Shared>>,
    request: Result<Json<SignalRequest>, JsonRejection>,
) -> Result<Json<SignalReply>, Refusal> {
    let Json(request) = request.map_err(|rejection| Refusal(rejection.status(), rejection.body_text()))?;
    let state = match request.state.parse() {
        Ok(WorkerState::Running) => {
            return Err(Refusal::bad("state: a worker cannot be told to run again; quiet or terminate"));
        }
        Ok(state) => state,
        Err(_) => return Err(Refusal::bad("state: not quiet or terminate")),
    };
    match request.whom.target()? {
        Target::Wid(wid) => match shared.registry.signal(&wid, state) {
            Ok(state) => Ok(Json(SignalReply { told: 1, state: Some(state.to_string()) })),
            Err(unknown) => Err(Refusal(StatusCode::NOT_FOUND, unknown.to_string())),
        },
        Target::Selected(selector) => {
            let told = shared.registry.signal_where(&selector, state);
            Ok(Json(SignalReply { told, state: None }))
        }
    }
}

async fn cordon(
    State(shared): State<Arc<Shared>>,
    request: Result<Json<CordonRequest>, JsonRejection>,
) -> Result<Json<CordonReply>, Refusal> {
    let Json(CordonRequest { whom, cordoned }) =
        request.map_err(|rejection| Refusal(rejection.status(), rejection.body_text()))?;
    let changed = match whom.target()? {
        Target::Wid(wid) => match shared.registry.cordon(&wid, cordoned) {
            Ok(changed) => usize::from(changed),
            Err(unknown) => return Err(Refusal(StatusCode::NOT_FOUND, unknown.to_string())),
        },
        Target::Selected(selector) => shared.registry.cordon_where(&selector, cordoned),
    };
    Ok(Json(CordonReply { changed }))
}

/// Lets through who knows the password, and came by a name that is ours.
async fn admit(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    if !is_our_name(request.headers(), &shared) {
        return Refusal(StatusCode::FORBIDDEN, "this host name is not served here".into()).into_response();
    }
    if let Some(password) = &shared.config.password
        && !given_password(request.headers()).is_some_and(|given| password.is(&given))
    {
        let refusal = Refusal(StatusCode::UNAUTHORIZED, "the password is needed".into());
        return ([(header::WWW_AUTHENTICATE, "Basic realm=\"heartwheel\"")], refusal).into_response();
    }
    next.run(request).await
}

fn is_our_name(headers: &HeaderMap, shared: &Shared) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    // An address is no name that a page could have been given; whoever listens beyond loopback chose to.
    name == "localhost"
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || !shared.config.api.ip().is_loopback())
}

fn given_password(headers: &HeaderMap) -> Option<String> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    let pair = String::from_utf8(BASE64_STANDARD.decode(given).ok()?).ok()?;
    Some(pair.split_once(':')?.1.to_owned())
}
