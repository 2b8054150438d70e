// Package requirements finds which release of a package a Python project asks for.
package requirements

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"

	"github.com/vprof/vprof/internal/input"
)

// ErrNotFound says that no file of a project names the package.
var ErrNotFound = errors.New("no release is asked for")

// mostBytes of a file are read: lock files of large projects have a few MiB.
const mostBytes = 64 << 20

// Find looks for a package in the files of a project's folder: uv.lock, which has
// the very release, then requirements.txt and pyproject.toml. The release comes without what
// stands before it: 2.11.0 of ==2.11.0 and of >=2.11.0.
func Find(dir, name string) (release string, err error) {
	for _, file := range []string{"uv.lock", "requirements.txt", "pyproject.toml"} {
		text, err := read(filepath.Join(dir, file))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", err
		}
		if v := Version(file, text, name); v != "" {
			return v, nil
		}
	}
	return "", fmt.Errorf("%s: %w: uv.lock, requirements.txt and pyproject.toml do not say which %s", dir,
		ErrNotFound, name)
}

func read(path string) ([]byte, error) {
	f, err := input.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, mostBytes))
}

// Version returns the release of a package that the file requires; empty if it does not.
func Version(file string, text []byte, name string) string {
	name = regexp.QuoteMeta(name)
	pattern := `(?m)^\s*"?` + name + `(?:\[[\w, -]*\])?\s*(?:[=~>]=)\s*v?(\d[\w.+]*)`
	switch file {
	case "uv.lock":
		pattern = `(?m)^name = "` + name + `"\r?\nversion = "(\d[\w.+]*)"`
	case "pyproject.toml":
		pattern = `(?m)(?:["']` + name + `(?:\[[\w, -]*\])?\s*(?:[=~>]=)|^` + name +
			`\s*=\s*["'][\^~=> ]*)\s*v?(\d[\w.+]*)`
	}
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		return ""
	}
	return string(m[1])
}
