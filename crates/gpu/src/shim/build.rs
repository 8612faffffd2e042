//! From a module's text to functions that can be called.

use std::collections::HashMap;
use std::ffi::{OsString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::{env, fs, io};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::{Error, ModuleSpec, module};

const HEADER: &str = include_str!("../../shim/shim.h");
const SCHEDULER: &str = include_str!("../../shim/shim.cpp");
const DRIVER: &str = include_str!("../../shim/driver.cpp");

const FLAGS: [&str; 19] = [
    "-std=c++17",
    "-O1",
    // Lines, for what the sanitizers say.
    "-g1",
    "-fPIC",
    "-shared",
    "-U_FORTIFY_SOURCE",
    "-DHUSHTABLE_SHIM",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-parameter",
    "-Wno-unused-variable",
    "-Wno-unused-but-set-variable",
    "-Wno-sign-compare",
    "-Wno-unknown-pragmas",
    // What the sanitizers add confuses it.
    "-Wno-maybe-uninitialized",
    // What a GPU faults on, or answers other than a processor.
    "-fsanitize=alignment,bounds,shift,integer-divide-by-zero",
    "-fno-sanitize-recover=all",
    "-I.",
];

/// The mark of a kernel in the preprocessed text: `KERNEL` of shim.h expands to it.
const MARK: &str = "extern \"C\" __attribute__((used)) void";

pub(super) type KernelFn = unsafe extern "C" fn(*mut *mut c_void);
type SizesFn = unsafe extern "C" fn(*mut u32) -> u32;
type LaunchFn =
    unsafe extern "C" fn(KernelFn, u32, u32, u32, u64, u32, u64, *mut *mut c_void, *mut [u64; 3]);

/// A kernel, and the bytes of each of its arguments.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) run: KernelFn,
    pub(super) sizes: Arc<[usize]>,
}

/// Loads the function that runs a kernel's threads.
pub(super) fn launcher() -> Result<LaunchFn, Error> {
    let library = scheduler()?;
    // SAFETY: shim.cpp defines it so, and the library stays loaded.
    let symbol = unsafe { library.get::<LaunchFn>(b"shim_launch\0") };
    Ok(*symbol.map_err(|error| failure("shim.cpp", &error.to_string()))?)
}

/// A kernel of a module, which is compiled if nobody has.
pub(super) fn entry(spec: &ModuleSpec, name: &'static str) -> Result<Entry, Error> {
    scheduler()?;
    let library = library(spec)?;
    let missing = |_| Error::NoKernel { module: spec.source, kernel: name };
    // SAFETY: the wrapper that `wrapper` wrote defines both so for each kernel.
    let (run, sizes) = unsafe {
        (
            *library.get::<KernelFn>(format!("launch_{name}\0").as_bytes()).map_err(missing)?,
            *library.get::<SizesFn>(format!("sizes_{name}\0").as_bytes()).map_err(missing)?,
        )
    };
    let mut each = [0; 64];
    // SAFETY: no kernel has 64 arguments.
    let count = unsafe { sizes(each.as_mut_ptr()) };
    let sizes = each[..count as usize].iter().map(|bytes| *bytes as usize).collect();
    Ok(Entry { run, sizes })
}

type Slot = Arc<OnceLock<Result<&'static Library, Error>>>;

/// Lets one compilation of a kind run at a time, beside compilations of other kinds.
fn once(
    key: blake3::Hash,
    make: impl FnOnce() -> Result<Library, Error>,
) -> Result<&'static Library, Error> {
    static SLOTS: LazyLock<Mutex<HashMap<blake3::Hash, Slot>>> = LazyLock::new(Mutex::default);
    let slot = {
        let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(key).or_default())
    };
    // Kernels of it may be called until the process ends.
    slot.get_or_init(|| make().map(|library| &*Box::leak(Box::new(library)))).clone()
}

/// The file of a library of one source, which may include `shim.h`.
fn built(source: &'static str, text: &str) -> Result<PathBuf, Error> {
    let mut hasher = blake3::Hasher::new();
    for part in FLAGS.iter().chain(&[HEADER, text]) {
        hasher.update(part.as_bytes());
    }
    let made = build(&hasher.finalize(), &|folder| {
        fs::write(folder.join("shim.h"), HEADER).map_err(said)?;
        fs::write(folder.join("source.cpp"), text).map_err(said)?;
        compile(folder, "source.cpp")
    });
    made.map_err(|log| failure(source, &log))
}

/// The file of the library that runs threads.
pub(super) fn scheduler_file() -> Result<PathBuf, Error> {
    built("shim.cpp", SCHEDULER)
}

/// The file of a library that answers for the driver.
pub(super) fn driver_file() -> Result<PathBuf, Error> {
    built("driver.cpp", DRIVER)
}

fn scheduler() -> Result<&'static Library, Error> {
    once(blake3::hash(SCHEDULER.as_bytes()), || {
        let built = scheduler_file()?;
        // Kernels' libraries look for the scheduler among what is loaded for all.
        // SAFETY: what was just compiled from this crate's text has no constructors that do harm.
        unsafe { Library::open(Some(built), RTLD_NOW | RTLD_GLOBAL) }
            .map_err(|error| failure("shim.cpp", &error.to_string()))
    })
}

fn library(spec: &ModuleSpec) -> Result<&'static Library, Error> {
    once(module_key(spec)?, || {
        let built = module_file(spec)?;
        // SAFETY: as for the scheduler.
        unsafe { Library::open(Some(built), RTLD_NOW) }
            .map_err(|error| failure(spec.source, &error.to_string()))
    })
}

fn module_key(spec: &ModuleSpec) -> Result<blake3::Hash, Error> {
    let mut how = FLAGS.to_vec();
    how.extend([HEADER, MARK]);
    module::hash(spec, &how)
}

/// The file of a module's library.
pub(super) fn module_file(spec: &ModuleSpec) -> Result<PathBuf, Error> {
    let files = module::files(spec.source)?;
    let made = build(&module_key(spec)?, &|folder| {
        fs::write(folder.join("shim.h"), HEADER).map_err(said)?;
        for (name, text) in &files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("in the folder")).map_err(said)?;
            fs::write(path, text).map_err(said)?;
        }
        let mut text: String =
            spec.defines.iter().map(|(name, value)| format!("#define {name} {value}u\n")).collect();
        text += &format!("#include \"{}\"\n", spec.source);
        fs::write(folder.join("module.cpp"), &text).map_err(said)?;
        let plain = run(compiler(folder).args(["-E", "-P", "module.cpp"]))?;
        fs::write(folder.join("module.cpp"), text + &wrapper(&plain)).map_err(said)?;
        compile(folder, "module.cpp")
    });
    made.map_err(|log| failure(spec.source, &log))
}

fn failure(module: &'static str, log: &str) -> Error {
    Error::Compile { module, target: "the host shim".to_owned(), log: log.to_owned() }
}

fn said(error: impl ToString) -> String {
    error.to_string()
}

/// Writes, for each kernel of a preprocessed text, a function that takes its arguments by pointers.
fn wrapper(plain: &str) -> String {
    let mut text = String::new();
    for part in plain.split(MARK).skip(1) {
        let name: String =
            part.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        text += &format!(
            "extern \"C\" void launch_{name}(void **arguments) {{ shim::call({name}, arguments); }}\n\
             extern \"C\" u32 sizes_{name}(u32 *bytes) {{ return shim::sizes({name}, bytes); }}\n"
        );
    }
    text
}

/// The library that `make` leaves in the folder that it is handed, from an earlier run if there was
/// one.
fn build(
    key: &blake3::Hash,
    make: &dyn Fn(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let root = root();
    let folder = root.join(format!("hushtable-shim-{}", &key.to_hex()[..32]));
    let library = folder.join("module.so");
    if library.exists() {
        return Ok(library);
    }
    // One process compiles it, and the others wait: tests that need the same start together.
    let lock = fs::File::create(folder.with_extension("lock")).map_err(said)?;
    lock.lock().map_err(said)?;
    if library.exists() {
        return Ok(library);
    }
    let fresh = tempfile::Builder::new()
        .prefix("hushtable-shim-new-")
        .tempdir_in(&root)
        .map_err(|error| format!("{}: {error}", root.display()))?;
    make(fresh.path())?;
    // Whole or not at all.
    fs::rename(fresh.path(), &folder).map_err(said)?;
    drop(fresh.keep());
    Ok(library)
}

/// Beside the test's program, which cargo makes and cleans, else where temporary files go.
fn root() -> PathBuf {
    let beside = env::current_exe().ok().and_then(|program| {
        let folder = program.parent()?;
        (folder.file_name()? == "deps").then(|| folder.to_owned())
    });
    beside.unwrap_or_else(env::temp_dir)
}

fn compiler(folder: &Path) -> Command {
    let mut command = Command::new(env::var_os("CXX").unwrap_or_else(|| OsString::from("c++")));
    command.current_dir(folder).args(FLAGS);
    command
}

fn compile(folder: &Path, source: &str) -> Result<(), String> {
    run(compiler(folder).args([source, "-o", "module.so"])).map(drop)
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            format!("no C++ compiler {:?}: install one, or set CXX", command.get_program())
        }
        _ => error.to_string(),
    })?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
