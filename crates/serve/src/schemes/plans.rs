//! Which of a model bundle's plans a server computes by.

use std::path::Path;

use hushtable_table::model::{CompiledPlan, Model};

use crate::error::{Error, Own};

/// What models computed on hidden features share: their features, plans, keys, answers.
impl Own for hushtable_infer::dlrm::Error {}

/// The plan of that name, or the model's only one for `scheme`.
///
/// # Errors
/// [`Error::Model`] for a plan that there is not or that is broken, [`Error::PlanScheme`] for one of another scheme,
/// [`Error::SeveralPlans`] where none of several is named.
pub(super) fn choose(
    path: &Path,
    model: &Model,
    plan: Option<&str>,
    scheme: &str,
) -> Result<CompiledPlan, Error> {
    let broken = |source| Error::Model { path: path.to_owned(), source: Box::new(source) };
    let name = match plan {
        Some(name) => name.to_owned(),
        None => {
            let names = model.plan_names().map_err(broken)?;
            // One that is broken stays: it is what the error is about.
            let is_other = |name: &String| model.plan(name).is_ok_and(|it| it.scheme != scheme);
            let mut plans: Vec<_> = names.iter().filter(|name| !is_other(name)).cloned().collect();
            match (plans.len(), names.len()) {
                (0, 1) => names[0].clone(),
                (0, _) => model.manifest().name().to_owned(),
                (1, _) => plans.remove(0),
                _ => return Err(Error::SeveralPlans { path: path.to_owned(), plans }),
            }
        }
    };
    let found = model.plan(&name).map_err(broken)?;
    match found.scheme == scheme {
        true => Ok(found),
        false => {
            let (path, scheme) = (path.to_owned(), found.scheme);
            Err(Error::PlanScheme { path, name, scheme })
        }
    }
}
