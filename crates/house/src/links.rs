//! Links in Markdown: a relative one must lead to a file that is there, and to a heading in it.

use std::path::{Component, Path, PathBuf};

/// Links of the Markdown `text` in `file` that lead nowhere. `read` gives the text of a file of the
/// repository, or None where there is none; `exists` also knows folders.
pub fn check_links(
    file: &Path,
    text: &str,
    exists: impl Fn(&Path) -> bool,
    read: impl Fn(&Path) -> Option<String>,
) -> Vec<String> {
    let mut found = Vec::new();
    for (line, target) in links(text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, heading) = target.split_once('#').unwrap_or((&target, ""));
        let at = format!("{}:{line}", file.display());
        let to = if path.is_empty() {
            file.to_owned()
        } else {
            match resolve(file.parent().unwrap_or(Path::new("")), path) {
                Some(to) if exists(&to) => to,
                Some(_) => {
                    found.push(format!("{at}: {target}: no such file"));
                    continue;
                }
                None => {
                    found.push(format!("{at}: {target}: leaves the repository"));
                    continue;
                }
            }
        };
        if !heading.is_empty() {
            let there = if to == file { Some(text.to_owned()) } else { read(&to) };
            if !there.is_some_and(|there| headings(&there).any(|slug| slug == heading)) {
                found.push(format!("{at}: {target}: no such heading"));
            }
        }
    }
    found
}

/// `path` from `folder`, without `.` and `..`; None where it climbs out of the repository.
fn resolve(folder: &Path, path: &str) -> Option<PathBuf> {
    let mut to = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::Normal(name) => to.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !to.pop() {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(to)
}

/// Lines outside fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

/// (line, target) of each `](target)` and each `src="target"`, inline code left out.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let visible: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for (opening, closing) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
            for piece in visible.split(opening).skip(1) {
                if let Some((target, _)) = piece.split_once(closing) {
                    let target = target.split_whitespace().next().unwrap_or_default();
                    found.push((number, target.to_owned()));
                }
            }
        }
    }
    found
}

/// The anchors of a text's headings, as code hosts make them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        line.trim_start_matches('#')
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::check_links;

    fn check(text: &str) -> Vec<String> {
        let files = ["docs/a.md", "README.md", "docs/picture.svg"];
        check_links(
            Path::new("docs/a.md"),
            text,
            |path| path == Path::new("docs") || files.iter().any(|file| path == Path::new(file)),
            |path| (path == Path::new("README.md")).then(|| "# One two: `three`\n".to_owned()),
        )
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "# Here\n[a](../README.md) [b](picture.svg \"title\") [c](#here) [d](../docs)\n\
                    [e](../README.md#one-two-three) [f](https://x.example/y) `[g](nowhere)`\n\
                    ```\n[h](nowhere)\n```\n<img src=\"picture.svg\">\n";
        assert_eq!(check(text), [""; 0]);
    }

    #[test]
    fn each_breach_is_found() {
        for (text, expected) in [
            ("[a](b.md)", "docs/a.md:1: b.md: no such file"),
            ("\n[a](../../etc)", "docs/a.md:2: ../../etc: leaves the repository"),
            ("[a](#there)", "docs/a.md:1: #there: no such heading"),
            ("[a](../README.md#two)", "docs/a.md:1: ../README.md#two: no such heading"),
            ("<img src=\"gone.svg\">", "docs/a.md:1: gone.svg: no such file"),
        ] {
            assert_eq!(check(text), [expected]);
        }
    }
}
