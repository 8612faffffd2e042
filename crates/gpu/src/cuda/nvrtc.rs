//! NVRTC: found at run time, loaded, asked to compile.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::{env, fmt, fs};

use libloading::Library;

use crate::{Error, ModuleSpec, module};

/// A file, or a folder with one: where to find NVRTC before anywhere else.
pub const NVRTC_VARIABLE: &str = "HUSHTABLE_NVRTC";

/// The library's names, as the system's loader may know them.
const SYSTEM_NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
/// Where toolkits are installed.
const TOOLKITS: &str = "/usr/local";

type Program = *mut c_void;

/// A loaded NVRTC.
pub struct Nvrtc {
    origin: String,
    version: (u32, u32),
    functions: Functions,
    // Last: what the functions point into, and what it looks for itself.
    _libraries: Vec<Library>,
}

/// A module as NVRTC compiled it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compiled {
    /// Machine code, as the driver loads it.
    pub cubin: Vec<u8>,
    /// What the compiler said: registers, stack and spills of each kernel, and warnings.
    pub log: String,
}

/// The registers and the memory that a kernel's thread takes, by the compiler's report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resources {
    /// The kernel.
    pub kernel: String,
    /// Registers of 32 bits.
    pub registers: u32,
    /// Bytes of local memory for arrays and calls.
    pub stack_bytes: u32,
    /// Bytes stored to, and loaded from, local memory for want of registers: instructions in the
    /// text, however often they run.
    pub spill_bytes: u32,
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of machine code; {}", self.cubin.len(), self.log)
    }
}

impl Compiled {
    /// What each kernel takes, by its name.
    pub fn resources(&self) -> Vec<Resources> {
        let mut found = Vec::new();
        // For each kernel the assembler names it, then its stack and spills, then its registers.
        for part in self.log.split("Function properties for ").skip(1) {
            let before = |what: &str| -> Option<u32> {
                let digits = part.split_once(what)?.0;
                digits.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
            };
            let numbers = (
                before(" registers"),
                before(" bytes stack frame"),
                before(" bytes spill stores"),
                before(" bytes spill loads"),
            );
            let kernel = part.split_whitespace().next();
            if let (
                Some(kernel),
                (Some(registers), Some(stack_bytes), Some(stored), Some(loaded)),
            ) = (kernel, numbers)
            {
                let (kernel, spill_bytes) = (kernel.to_owned(), stored + loaded);
                found.push(Resources { kernel, registers, stack_bytes, spill_bytes });
            }
        }
        found.sort_by(|one, other| one.kernel.cmp(&other.kernel));
        found
    }
}

/// What a compiler must be able to do; `None` asks for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Need {
    /// The driver that is to load what it makes, as in 13000.
    pub driver_version: Option<u32>,
    /// The device's compute capability.
    pub capability: Option<(u32, u32)>,
}

macro_rules! functions {
    ($($field:ident: $name:literal ($($argument:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }
        impl Functions {
            fn of(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: NVRTC's manual has these functions with these arguments; the library stays
                // loaded for as long as they are used.
                unsafe { Ok(Self { $($field: *library.get(concat!($name, "\0"))?,)* }) }
            }
        }
    };
}

functions! {
    version: "nvrtcVersion" (*mut c_int, *mut c_int);
    architecture_count: "nvrtcGetNumSupportedArchs" (*mut c_int);
    architectures: "nvrtcGetSupportedArchs" (*mut c_int);
    create: "nvrtcCreateProgram"
        (*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
    compile: "nvrtcCompileProgram" (Program, c_int, *const *const c_char);
    log_bytes: "nvrtcGetProgramLogSize" (Program, *mut usize);
    log: "nvrtcGetProgramLog" (Program, *mut c_char);
    cubin_bytes: "nvrtcGetCUBINSize" (Program, *mut usize);
    cubin: "nvrtcGetCUBIN" (Program, *mut c_char);
    destroy: "nvrtcDestroyProgram" (*mut Program);
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NVRTC {}.{} ({})", self.version.0, self.version.1, self.origin)
    }
}

impl Nvrtc {
    /// Loads the library at a path, or by a name that the system's loader knows; what is wrong with it
    /// otherwise. It runs in this process, so which paths are tried is [`find`](Self::find)'s affair.
    fn load(path: &Path) -> Result<Self, String> {
        let origin = path.display().to_string();
        let said = |error: libloading::Error| format!("{origin} ({error})");
        // SAFETY: NVRTC's library does nothing when it is loaded.
        let library = unsafe { Library::new(path) }.map_err(said)?;
        let functions = Functions::of(&library).map_err(said)?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: two places for two numbers.
        unsafe { (functions.version)(&mut major, &mut minor) };
        let version = (major as u32, minor as u32);
        let mut libraries = vec![library];
        libraries.extend(builtins(path, version));
        Ok(Self { origin, version, functions, _libraries: libraries })
    }

    /// Finds one that will do: the file or folder in the environment variable HUSHTABLE_NVRTC, and
    /// no other, if that is set; else what the system's loader knows, toolkits under `/usr/local`,
    /// and `folders` (a Python environment's `site-packages/nvidia/*/lib`), the first that is not
    /// newer than the driver, else the first of the driver's own major version: a driver loads the
    /// code of any NVRTC of its major version (CUDA Compatibility, "Minor Version Compatibility").
    ///
    /// What is found there runs in this process: let nobody write to these folders or set the variable
    /// who may not replace the program.
    ///
    /// # Errors
    /// [`Error::NoCompiler`] with where was looked and why nothing would do.
    pub fn find(folders: &[PathBuf], need: Need) -> Result<Self, Error> {
        if let Some(path) = env::var_os(NVRTC_VARIABLE).filter(|path| !path.is_empty()) {
            let path = PathBuf::from(path);
            let paths = if path.is_dir() { in_folder(&path) } else { vec![path.clone()] };
            return choose(&paths, need).map_err(|why| Error::NoCompiler {
                searched: format!("{NVRTC_VARIABLE}={} only: {why}", path.display()),
            });
        }
        let mut paths: Vec<PathBuf> = SYSTEM_NAMES.iter().map(PathBuf::from).collect();
        for toolkit in children(Path::new(TOOLKITS), "cuda").iter().rev() {
            paths.extend(in_folder(&toolkit.join("lib64")));
        }
        for folder in folders {
            paths.extend(in_folder(folder));
        }
        choose(&paths, need).map_err(|why| Error::NoCompiler {
            searched: format!(
                "{why}; in {TOOLKITS}/cuda*/lib64 and {} folders of packages",
                folders.len()
            ),
        })
    }

    /// Its version, major and minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Where it was found.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Why it will not do, if it will not.
    fn lacks(&self, need: Need) -> Option<String> {
        if let Some(driver) = need.driver_version.filter(|driver| driver / 1000 < self.version.0) {
            let major = driver / 1000;
            return Some(format!("{self} makes code that a driver of CUDA {major} does not load"));
        }
        let (major, minor) = need.capability?;
        let known = self.architectures();
        let is_known = known.contains(&(10 * major + minor));
        (!is_known).then(|| format!("{self} does not know compute capability {major}.{minor}"))
    }

    /// Architectures that it compiles for, as in 80.
    fn architectures(&self) -> BTreeSet<u32> {
        let mut count = 0;
        // SAFETY: a place for a number.
        unsafe { (self.functions.architecture_count)(&mut count) };
        let mut found = vec![0; count.max(0) as usize];
        // SAFETY: places for as many as it has.
        unsafe { (self.functions.architectures)(found.as_mut_ptr()) };
        found.into_iter().map(|architecture| architecture as u32).collect()
    }

    /// Compiles a module for a target, as in `sm_90a`, to machine code.
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's words.
    pub fn compile(&self, spec: &ModuleSpec, target: &str) -> Result<Compiled, Error> {
        let failed = |log: String| Error::Compile {
            module: spec.source,
            target: target.to_owned(),
            log: if log.is_empty() { "the compiler did not say why".to_owned() } else { log },
        };
        let files = module::files(spec.source)?;
        let text = |bytes: &str| CString::new(bytes).expect("sources have no zero bytes");
        let files: Vec<(CString, CString)> =
            files.iter().map(|(name, content)| (text(name), text(content))).collect();
        let ((name, source), headers) = files.split_first().expect("the source itself");
        let names: Vec<_> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
        let contents: Vec<_> = headers.iter().map(|(_, content)| content.as_ptr()).collect();
        let options: Vec<CString> = options(spec, target).iter().map(|word| text(word)).collect();
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();

        let mut program = Running { of: self, program: std::ptr::null_mut() };
        // SAFETY: pointers to as many strings as are announced, which outlive the call.
        let made = unsafe {
            (self.functions.create)(
                &mut program.program,
                source.as_ptr(),
                name.as_ptr(),
                headers.len() as c_int,
                contents.as_ptr(),
                names.as_ptr(),
            )
        };
        if made != 0 {
            return Err(failed(format!("{self} refused the source, with code {made}")));
        }
        // SAFETY: a program that was made, and as many strings as are announced.
        let done = unsafe {
            (self.functions.compile)(program.program, options.len() as c_int, options.as_ptr())
        };
        let log = program.take(self.functions.log_bytes, self.functions.log).unwrap_or_default();
        let log = CStr::from_bytes_until_nul(&log)
            .map(|log| log.to_string_lossy().into_owned())
            .unwrap_or_default();
        if done != 0 {
            return Err(failed(log));
        }
        let cubin = program
            .take(self.functions.cubin_bytes, self.functions.cubin)
            .filter(|cubin| !cubin.is_empty())
            .ok_or_else(|| failed(format!("{self} made no machine code")))?;
        Ok(Compiled { cubin, log })
    }
}

/// The compiler's options. All modules share them, except for the macros.
pub(super) fn options(spec: &ModuleSpec, target: &str) -> Vec<String> {
    let mut options = vec![
        format!("--gpu-architecture={target}"),
        "--std=c++17".to_owned(),
        // For the profiler and the sanitizer: lines, at no cost to the code.
        "--generate-line-info".to_owned(),
        "--ptxas-options=-v".to_owned(),
    ];
    options
        .extend(spec.defines.iter().map(|(name, value)| format!("--define-macro={name}={value}u")));
    options
}

/// The target of a capability. Hopper's own instructions are of `sm_90a` alone.
pub fn target(capability: (u32, u32)) -> String {
    match capability {
        (9, 0) => "sm_90a".to_owned(),
        (major, minor) => format!("sm_{major}{minor}"),
    }
}

struct Running<'a> {
    of: &'a Nvrtc,
    program: Program,
}

impl Running<'_> {
    /// What NVRTC gives by two functions: how many bytes, and the bytes.
    fn take(
        &self,
        count: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        copy: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Option<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: a program that was made, and a place for a number.
        if unsafe { count(self.program, &mut bytes) } != 0 {
            return None;
        }
        let mut taken = vec![0u8; bytes];
        // SAFETY: room for as many bytes as it said.
        (unsafe { copy(self.program, taken.as_mut_ptr().cast()) } == 0).then_some(taken)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: a program that was made, given up once.
            unsafe { (self.of.functions.destroy)(&mut self.program) };
        }
    }
}

/// What belongs to a library in a folder that the system's loader does not know, as that of a wheel:
/// it asks for it by name when it first compiles, and finds it if it is loaded by then.
fn builtins(path: &Path, version: (u32, u32)) -> Option<Library> {
    let name = format!("libnvrtc-builtins.so.{}.{}", version.0, version.1);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    // SAFETY: NVRTC's own library, which does nothing when it is loaded.
    unsafe { Library::new(folder.join(name)) }.ok()
}

/// The first that fits the driver in full, else the first that its major version lets it load.
fn choose(paths: &[PathBuf], need: Need) -> Result<Nvrtc, String> {
    let mut newer = None;
    let mut why = Vec::new();
    for path in paths {
        match Nvrtc::load(path) {
            Err(_) if path.components().count() == 1 => why.push(path.display().to_string()),
            Err(error) => why.push(error),
            Ok(found) => match found.lacks(need) {
                Some(lack) => why.push(lack),
                None => {
                    let version = 1000 * found.version.0 + 10 * found.version.1;
                    if need.driver_version.is_none_or(|driver| version <= driver) {
                        return Ok(found);
                    }
                    newer.get_or_insert(found);
                }
            },
        }
    }
    newer.ok_or_else(|| if why.is_empty() { "nothing there".to_owned() } else { why.join(", ") })
}

/// NVRTC's libraries in a folder, the newest name first; not what belongs to them.
fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let mut found = children(folder, "libnvrtc.so");
    found.reverse();
    found
}

/// The entries of a folder whose names start with `start`, sorted.
fn children(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Compiled, Need, Resources, choose, in_folder, options, target};
    use crate::{Error, ModuleSpec};

    #[test]
    fn targets_are_exact() {
        assert_eq!(target((9, 0)), "sm_90a");
        assert_eq!(target((8, 0)), "sm_80");
        assert_eq!(target((12, 0)), "sm_120");
        let spec = ModuleSpec { source: "probe.cu", defines: vec![("ROWS", 7)] };
        let options = options(&spec, "sm_80");
        for expected in ["--gpu-architecture=sm_80", "--define-macro=ROWS=7u"] {
            assert!(options.iter().any(|option| option == expected), "{options:?}");
        }
    }

    #[test]
    fn the_assemblers_words_are_read() {
        let log = "ptxas info    : Compiling entry function 'b' for 'sm_80'\n\
                   ptxas info    : Function properties for b\n\
                   ptxas         .     16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n\
                   ptxas info    : Used 44 registers, used 1 barriers, 364 bytes cmem[0]\n\
                   ptxas info    : Function properties for a\n    \
                   0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                   ptxas info    : Used 7 registers\n";
        let of = |kernel: &str, registers, stack_bytes, spill_bytes| Resources {
            kernel: kernel.to_owned(),
            registers,
            stack_bytes,
            spill_bytes,
        };
        let compiled = Compiled { cubin: vec![], log: log.to_owned() };
        assert_eq!(compiled.resources(), [of("a", 7, 0, 0), of("b", 44, 16, 12)]);
    }

    #[test]
    fn only_the_library_itself_is_taken_from_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in
            ["libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc.alt.so.13"]
        {
            fs::write(folder.path().join(name), b"no library").expect("written");
        }
        let found = in_folder(folder.path());
        let names: Vec<_> = found.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names, ["libnvrtc.so.13", "libnvrtc.so.12"]);
        let why = choose(&found, Need::default()).expect_err("no libraries");
        assert!(why.contains("libnvrtc.so.13") && why.contains("libnvrtc.so.12"), "{why}");
        assert!(in_folder(Path::new("/no/such/folder")).is_empty());
    }

    #[test]
    fn what_is_no_compiler_is_said_with_the_remedy() {
        let paths = ["/no/such/libnvrtc.so.13".into()];
        let why = choose(&paths, Need::default()).expect_err("not there");
        let text = Error::NoCompiler { searched: why }.to_string();
        for expected in ["/no/such/libnvrtc.so.13", "pip install", "HUSHTABLE_NVRTC"] {
            assert!(text.contains(expected), "{text}");
        }
    }
}
