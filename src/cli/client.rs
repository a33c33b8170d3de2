//! Asks the API of a running server.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::PasswordArgs;

/// How long the server may take to answer.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(super) struct Api {
    /// Address of the server's API
    #[arg(long, value_name = "HOST:PORT", env = "HEARTWHEEL_API", default_value = "127.0.0.1:7420")]
    api: String,
    #[command(flatten)]
    password: PasswordArgs,
}

#[derive(serde::Deserialize)]
struct Refusal {
    error: String,
}

impl Api {
    pub(super) fn get<R: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<R> {
        self.ask(
            |agent, url, authorization| {
                let mut request = agent.get(url).query_pairs(query.iter().copied());
                if let Some(authorization) = authorization {
                    request = request.header("Authorization", authorization);
                }
                request.call()
            },
            path,
        )
    }

    pub(super) fn post<R: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<R> {
        self.ask(
            |agent, url, authorization| {
                let mut request = agent.post(url);
                if let Some(authorization) = authorization {
                    request = request.header("Authorization", authorization);
                }
                request.send_json(body)
            },
            path,
        )
    }

    fn ask<R: DeserializeOwned>(
        &self,
        call: impl FnOnce(
            &ureq::Agent,
            &str,
            Option<&str>,
        ) -> Result<ureq::http::Response<ureq::Body>, ureq::Error>,
        path: &str,
    ) -> anyhow::Result<R> {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(LIMIT))
            // A refusal is read, not thrown away.
            .http_status_as_error(false)
            // The address is meant: no proxy on the way.
            .proxy(None)
            .build();
        let authorization = self
            .password
            .text()?
            .map(|password| format!("Basic {}", BASE64_STANDARD.encode(format!("operator:{password}"))));
        let url = format!("http://{}{path}", self.api);
        let mut response = call(&ureq::Agent::new_with_config(config), &url, authorization.as_deref())
            .with_context(|| format!("cannot ask the server at {}", self.api))?;
        let status = response.status();
        let body = response.body_mut().with_config().limit(1 << 30).reader();
        if status.is_success() {
            serde_json::from_reader(body).with_context(|| format!("{} is no heartwheel API", self.api))
        } else {
            let refusal: Result<Refusal, _> = serde_json::from_reader(body);
            Err(anyhow!(
                refusal.map_or_else(|_| format!("{} answered {status}", self.api), |refusal| refusal.error)
            ))
        }
    }
}
