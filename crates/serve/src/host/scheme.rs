//! What a scheme tells a server of itself: the one descriptor by which it plugs in.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use prometheus_client::registry::Registry;

use super::door::Routes;
use crate::Error;
use crate::vital::Vitals;

/// A scheme as a server sees it. [`Unbound`](super::Unbound) holds one.
#[allow(clippy::exhaustive_structs, reason = "a descriptor is written field by field")]
pub struct Scheme {
    /// The gRPC services that it offers. Health and metrics speak of these alone.
    pub services: &'static [GrpcService],
    /// What this server calls its part in the build info: `controller`, say.
    pub side: &'static str,
    /// Registers what the scheme counts, under the prefix `hushtable`. Called once, before the load:
    /// the scheme keeps a clone of its metrics for the load. No label and no value may come from a
    /// query.
    pub register: Box<dyn FnOnce(&mut Registry) + Send>,
    /// Loads what is served.
    pub load: Load,
}

/// A gRPC service and its methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a descriptor is written field by field")]
pub struct GrpcService {
    /// The full name: `hushtable.v1.PrivateLookup`, say.
    pub name: &'static str,
    /// Its methods. A method that is not here is not offered.
    pub methods: &'static [Method],
}

/// A method of a gRPC service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a descriptor is written field by field")]
pub struct Method {
    /// The name in the proto.
    pub name: &'static str,
    /// The name in the metrics' label `method`.
    pub metric: &'static str,
}

/// What loads what is served and makes the service that answers from it. Called once, on a thread that may
/// block, within the server's runtime.
pub type Load = Box<dyn FnOnce(&Loading) -> Result<Arc<dyn Routes>, Error> + Send>;

/// What a load may use.
#[derive(Default)]
#[non_exhaustive]
pub struct Loading {
    /// Becomes true where nobody waits for the load any more.
    pub is_abandoned: Arc<AtomicBool>,
    /// Where a load says what answers, in a line.
    pub engine: Arc<OnceLock<String>>,
    /// What is told of threads that panic: those that answer are held by it.
    pub vitals: Vitals,
}

/// Where a request's path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// To the health service, which every server has.
    Health,
    /// To an offered method.
    Offered(Method),
    /// To a method that an offered service does not have.
    NoMethod,
    /// To a service that is not offered.
    NoService,
}

impl Method {
    /// A method that the metrics call what the proto calls it.
    pub const fn named(name: &'static str) -> Self {
        Self { name, metric: name }
    }
}

impl Destination {
    /// Where `path` leads at a server of `services`.
    pub fn of(path: &str, services: &[GrpcService]) -> Self {
        let Some((service, method)) = path.strip_prefix('/').and_then(|path| path.split_once('/'))
        else {
            return Self::NoService;
        };
        if service == HEALTH_SERVICE {
            return match HEALTH_METHODS.contains(&method) {
                true => Self::Health,
                false => Self::NoMethod,
            };
        }
        let Some(offered) = services.iter().find(|offered| offered.name == service) else {
            return Self::NoService;
        };
        let method = offered.methods.iter().find(|offered| offered.name == method);
        method.map_or(Self::NoMethod, |&method| Self::Offered(method))
    }

    /// What the metrics' label `method` says.
    pub fn metric(self) -> &'static str {
        match self {
            Self::Health => "Health",
            Self::Offered(method) => method.metric,
            Self::NoMethod | Self::NoService => "other",
        }
    }
}

/// The name of the service that `path` leads to, of those offered.
pub(super) fn service_of(path: &str, services: &'static [GrpcService]) -> &'static str {
    let service = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    let offered = services.iter().find(|offered| service.is_some_and(|(it, _)| it == offered.name));
    offered.map_or("other", |offered| offered.name)
}

const HEALTH_SERVICE: &str = "grpc.health.v1.Health";
const HEALTH_METHODS: [&str; 2] = ["Check", "Watch"];

#[cfg(test)]
impl GrpcService {
    /// The service's methods by `proto`: what a scheme's test compares its descriptor with.
    pub fn methods_in(self, proto: &str) -> Vec<&str> {
        let (_, short) = self.name.rsplit_once('.').expect("a package");
        let (_, rest) = proto.split_once(&format!("service {short} {{")).expect("the service");
        let (body, _) = rest.split_once("\n}").expect("its end");
        let methods = body.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
        methods.map(|line| line.split('(').next().expect("a name")).collect()
    }

    /// Fails where the descriptor and the `proto` do not have the same methods.
    pub fn check_against(self, proto: &str) {
        let mut described: Vec<_> = self.methods.iter().map(|method| method.name).collect();
        let mut declared = self.methods_in(proto);
        described.sort_unstable();
        declared.sort_unstable();
        assert_eq!(described, declared, "{}", self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICES: [GrpcService; 2] = [
        GrpcService { name: "toys.v1.Echo", methods: &[Method::named("Say")] },
        GrpcService {
            name: "toys.v1.Echoes",
            methods: &[Method { name: "Say", metric: "SayAll" }],
        },
    ];

    #[test]
    fn a_path_leads_where_the_descriptor_says() {
        for (path, expected, metric) in [
            ("/toys.v1.Echo/Say", Destination::Offered(Method::named("Say")), "Say"),
            ("/toys.v1.Echoes/Say", Destination::Offered(SERVICES[1].methods[0]), "SayAll"),
            ("/grpc.health.v1.Health/Check", Destination::Health, "Health"),
            ("/grpc.health.v1.Health/Else", Destination::NoMethod, "other"),
            ("/toys.v1.Echo/Sing", Destination::NoMethod, "other"),
            ("/toys.v1.Echo/Say/more", Destination::NoMethod, "other"),
            ("/toys.v1.Ech/Say", Destination::NoService, "other"),
            ("toys.v1.Echo/Say", Destination::NoService, "other"),
            ("/", Destination::NoService, "other"),
            ("", Destination::NoService, "other"),
        ] {
            let found = Destination::of(path, &SERVICES);
            assert_eq!((found, found.metric()), (expected, metric), "{path}");
        }
    }

    #[test]
    #[should_panic(expected = "toys.v1.Echo")]
    fn a_method_that_a_descriptor_lacks_is_found() {
        SERVICES[0].check_against("service Echo {\n  rpc Say(A) returns (B);\n  rpc Sing(A);\n}");
    }
}
