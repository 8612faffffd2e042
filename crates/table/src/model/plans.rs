//! Compiled plans: how one version of the model is computed in private.
//!
//! A plan is derived, as prepared tables are: it can be made again, and is no part of the model's
//! version. Its file says which version it was made of, and is refused beside another. What a plan holds
//! is its scheme's affair: here it is text with a hash.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::manifest::check_name;
use super::{Model, ModelError, places};
use crate::error::Error;
use crate::staging::sync_folder;
use crate::version::Version;

/// A compiled plan that belongs to its model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompiledPlan {
    /// Its name, which its file has.
    pub name: String,
    /// What it is compiled for: one of [`PLAN_SCHEMES`](places::PLAN_SCHEMES).
    pub scheme: String,
    /// BLAKE3 of its text.
    pub version: Version,
    /// What the scheme wrote: JSON.
    pub json: String,
}

/// What [`verify`](super::verify) found of one plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PlanReport {
    /// Its name.
    pub name: String,
    /// Why it cannot be used with this model; `None` where it can.
    pub error: Option<String>,
}

impl Model {
    /// The names of the compiled plans in the bundle, sorted. None of them is read.
    ///
    /// # Errors
    /// [`Error::Io`] for a folder that cannot be listed.
    pub fn plan_names(&self) -> Result<Vec<String>, Error> {
        let folder = self.path().join(places::PLANS);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("list", &folder)(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(Error::io("list", &folder))?;
            let file = entry.file_name();
            let mut endings = places::PLAN_SCHEMES.into_iter().map(places::plan_ending);
            let name = file
                .to_str()
                .and_then(|file| endings.find_map(|ending| file.strip_suffix(ending.as_str())));
            if let Some(name) = name.filter(|name| check_name("plan", name).is_ok()) {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Where the compiled plan of this name and scheme is, once it is made.
    pub fn plan_path(&self, name: &str, scheme: &str) -> PathBuf {
        self.path().join(places::plan(name, scheme))
    }

    /// What the plan of this name is compiled for; `None` where there is none.
    fn plan_scheme(&self, name: &str) -> Result<Option<&'static str>, ModelError> {
        let is_there = |scheme: &&str| self.plan_path(name, scheme).exists();
        let found: Vec<&str> = places::PLAN_SCHEMES.into_iter().filter(is_there).collect();
        match found[..] {
            [] => Ok(None),
            [scheme] => Ok(Some(scheme)),
            _ => {
                let why =
                    format!("there is one for each of {}: remove all but one", found.join(", "));
                Err(ModelError::PlanForm { name: name.to_owned(), why })
            }
        }
    }

    /// Reads a compiled plan, and checks that it was made of this version of the model.
    ///
    /// # Errors
    /// [`Error::Model`] with [`ModelError::UnknownPlan`], [`ModelError::PlanForm`] for a file that is no
    /// plan or was changed, [`ModelError::PlanVersion`] for one of another version; [`Error::Io`].
    pub fn plan(&self, name: &str) -> Result<CompiledPlan, Error> {
        let wrong = |source| Error::model(self.path())(source);
        check_name("plan", name).map_err(wrong)?;
        let Some(scheme) = self.plan_scheme(name).map_err(wrong)? else {
            let (name, plans) = (name.to_owned(), self.plan_names()?);
            return Err(wrong(ModelError::UnknownPlan { name, plans }));
        };
        let path = self.plan_path(name, scheme);
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        let form = |why: String| ModelError::PlanForm { name: name.to_owned(), why };
        let mut text = String::new();
        let limit = PLAN_BYTES_MAX as u64 + 1;
        let read =
            file.take(limit).read_to_string(&mut text).map_err(|error| match error.kind() {
                std::io::ErrorKind::InvalidData => wrong(form("it is no text".into())),
                _ => Error::io("read", &path)(error),
            })?;
        if read > PLAN_BYTES_MAX {
            return Err(wrong(form(format!("it has over {PLAN_BYTES_MAX} bytes"))));
        }
        let file: PlanFile<'_> = serde_json::from_str(&text)
            .map_err(|error| wrong(form(format!("it is malformed: {error}"))))?;
        if file.format != FORMAT || file.format_version != FORMAT_VERSION {
            let why = format!("it is not of format {FORMAT:?}, version {FORMAT_VERSION}");
            return Err(wrong(form(why)));
        }
        if file.scheme != scheme {
            let why =
                format!("it is of scheme {:?}, not {scheme:?} as its file's name", file.scheme);
            return Err(wrong(form(why)));
        }
        let version = version_of(file.plan.get());
        if version != file.blake3 {
            return Err(wrong(form(
                "its checksum does not match: it was edited or damaged".into(),
            )));
        }
        let expected = self.manifest().version();
        if file.model != expected {
            let (name, found) = (name.to_owned(), file.model);
            return Err(wrong(ModelError::PlanVersion { name, expected, found }));
        }
        let (name, json) = (name.to_owned(), file.plan.get().to_owned());
        Ok(CompiledPlan { name, scheme: file.scheme.into_owned(), version, json })
    }

    /// Writes a compiled plan of this model into its bundle, in place of one of that name, in one step.
    /// `json` is what the scheme compiled.
    ///
    /// # Errors
    /// [`Error::Model`] for a name that cannot be a file's, for text that is no JSON or too long, and with
    /// [`ModelError::PlanScheme`] for a scheme that there is not, or another than the plan of that name
    /// has; [`Error::Io`].
    pub fn write_plan(&self, name: &str, scheme: &str, json: &str) -> Result<CompiledPlan, Error> {
        let wrong = |source| Error::model(self.path())(source);
        check_name("plan", name).map_err(wrong)?;
        let form = |why: String| wrong(ModelError::PlanForm { name: name.to_owned(), why });
        let other = |why: String| {
            let (name, scheme) = (name.to_owned(), scheme.chars().take(40).collect());
            Err(wrong(ModelError::PlanScheme { name, scheme, why }))
        };
        if !places::PLAN_SCHEMES.contains(&scheme) {
            return other(format!("possible are {}", places::PLAN_SCHEMES.join(" and ")));
        }
        // A name stands for one plan, whatever its scheme: whoever serves it names nothing else.
        if let Some(found) = self.plan_scheme(name).map_err(wrong)?.filter(|found| *found != scheme)
        {
            return other(format!(
                "a plan of that name is compiled for {found}: choose another name, or remove {}",
                places::plan(name, found).display()
            ));
        }
        let plan: &RawValue = serde_json::from_str(json)
            .map_err(|error| form(format!("it is malformed: {error}")))?;
        let version = version_of(plan.get());
        let file = PlanFile {
            format: FORMAT.into(),
            format_version: FORMAT_VERSION,
            scheme: scheme.into(),
            model: self.manifest().version(),
            blake3: version,
            plan,
        };
        let mut text = serde_json::to_vec(&file).map_err(|error| form(error.to_string()))?;
        text.push(b'\n');
        if text.len() > PLAN_BYTES_MAX {
            return Err(form(format!("it has over {PLAN_BYTES_MAX} bytes")));
        }
        let folder = self.path().join(places::PLANS);
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        write_aside(&folder, &self.plan_path(name, scheme), &text)?;
        let (name, json) = (name.to_owned(), plan.get().to_owned());
        Ok(CompiledPlan { name, scheme: scheme.to_owned(), version, json })
    }
}

/// What is wrong with each plan in the bundle.
pub(super) fn check_plans(model: &Model) -> Result<Vec<PlanReport>, Error> {
    let report = |name: String| {
        let error = model.plan(&name).err().map(|error| error.to_string());
        PlanReport { name, error }
    };
    Ok(model.plan_names()?.into_iter().map(report).collect())
}

/// Whether a file in the folder of plans is one of ours, for whoever replaces the bundle.
pub(super) fn is_plan_file(name: &str) -> bool {
    let is_of = |ending: String| name.ends_with(&ending) || name.contains(&format!("{ending}."));
    places::PLAN_SCHEMES.into_iter().map(places::plan_ending).any(is_of)
}

/// Writes a file beside its place, then gives it its name: whoever reads it finds the old one or the new.
fn write_aside(folder: &Path, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(aside);
    let written = File::create(&aside)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&aside, path))
        .and_then(|()| sync_folder(folder));
    written.map_err(|error| {
        // What was half written is of no use to anyone.
        let _ = fs::remove_file(&aside);
        Error::io("write", path)(error)
    })
}

fn version_of(text: &str) -> Version {
    Version::from(*blake3::hash(text.as_bytes()).as_bytes())
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile<'a> {
    #[serde(borrow)]
    format: std::borrow::Cow<'a, str>,
    format_version: u64,
    #[serde(borrow)]
    scheme: std::borrow::Cow<'a, str>,
    /// The version of the model that it was made of.
    model: Version,
    /// Of the plan's text.
    blake3: Version,
    #[serde(borrow)]
    plan: &'a RawValue,
}

const FORMAT: &str = "hushtable-plan";
const FORMAT_VERSION: u64 = 1;
/// More than any plan has: it holds no weights.
const PLAN_BYTES_MAX: usize = 16 << 20;
