//! Two servers or one: what both kinds of clients do, under one name.

use std::sync::Arc;

use hushtable_pir::onion::Geometry;
use hushtable_serve::{Bag, ClientSpec, Error, Lookup, LookupClient, OnionClient, OnionClientSpec};
use hushtable_table::layout::Layout;

use crate::errors::Failure;
use crate::table::Facts;

/// `(parameters, key_bytes, query_bytes, response_bytes)`: the fields of `hushtable.OnionInfo`.
pub(crate) type OnionFacts = (&'static str, u64, u64, u64);

/// Whom to connect to.
pub(crate) enum Endpoints {
    /// A left and a right server.
    Two(Box<ClientSpec>),
    /// A single server.
    One(Box<OnionClientSpec>),
}

/// A connected client.
pub(crate) enum Lookups {
    Two(LookupClient),
    One(OnionClient),
}

impl Lookups {
    pub(crate) async fn connect(endpoints: &Endpoints) -> Result<Self, Failure> {
        let (connected, identity) = match endpoints {
            Endpoints::Two(spec) => {
                (LookupClient::connect(spec).await.map(Self::Two), &spec.left.identity)
            }
            Endpoints::One(spec) => {
                (OnionClient::connect(spec).await.map(Self::One), &spec.server.identity)
            }
        };
        connected.map_err(|error| Failure::at_connect(error, identity.is_some()))
    }

    pub(crate) async fn lookup(&self, ids: &[u64], max_ids: usize) -> Result<Lookup, Error> {
        match self {
            Self::Two(client) => client.lookup(ids, max_ids).await,
            Self::One(client) => client.lookup(ids, max_ids).await,
        }
    }

    pub(crate) async fn fetch_bag(&self, ids: &[u64]) -> Result<Bag, Failure> {
        match self {
            Self::Two(client) => Ok(client.fetch_bag(ids).await?),
            Self::One(_) => Err(Failure::new(
                "NoLayout",
                "a single server answers no bags: layouts are for two servers; look the rows up \
                 by lookup()",
            )),
        }
    }

    /// The layout that bags are asked by.
    pub(crate) fn layout(&self) -> Result<Option<Arc<Layout>>, Failure> {
        match self {
            Self::Two(client) => Ok(client.layout()?),
            Self::One(_) => Ok(None),
        }
    }

    /// The table, and the most keys or queries of one lookup.
    pub(crate) fn facts(&self) -> (Facts, usize) {
        let (name, shape, dim, dtype, version, most) = match self {
            Self::Two(client) => {
                let info = client.info();
                let most = info.keys_per_request_max;
                (info.name, info.shape, info.dim, info.dtype, info.version, most)
            }
            Self::One(client) => {
                let info = client.info();
                let most = info.queries_per_request_max;
                (info.name, info.shape, info.dim, info.dtype, info.version, most)
            }
        };
        let rows = (shape.rows(), shape.row_bytes());
        ((name, rows.0, dim, dtype.name(), rows.1, version.to_string()), most)
    }

    /// What a lookup from a single server costs.
    pub(crate) fn onion(&self) -> Option<OnionFacts> {
        match self {
            Self::Two(_) => None,
            Self::One(client) => Some(onion_facts(&client.info().geometry)),
        }
    }
}

pub(crate) fn onion_facts(geometry: &Geometry) -> OnionFacts {
    (
        geometry.set().name(),
        geometry.key_bytes() as u64,
        geometry.query_bytes() as u64,
        geometry.response_bytes() as u64,
    )
}
