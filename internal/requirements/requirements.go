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

// A Pin is what a file asks for.
type Pin struct {
	// Version is the release, without what stands before it: 2.11.0 of ==2.11.0 and
	// of >=2.11.0.
	Version string
	// File is the path of the file that says so.
	File string
}

// ErrNotFound says that no file of a project names the package.
var ErrNotFound = errors.New("no release is asked for")

// mostBytes of a file are read: lock files of large projects have a few MiB.
const mostBytes = 64 << 20

// Find looks for a package in the files of a project's folder: uv.lock, which has
// the very release, then requirements.txt and pyproject.toml.
func Find(dir, name string) (Pin, error) {
	for _, file := range []string{"uv.lock", "requirements.txt", "pyproject.toml"} {
		path := filepath.Join(dir, file)
		text, err := read(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return Pin{}, err
		}
		if v := Version(file, text, name); v != "" {
			return Pin{v, path}, nil
		}
	}
	return Pin{}, fmt.Errorf("%s: %w: uv.lock, requirements.txt and pyproject.toml do not say which %s", dir,
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

// Version is the release of a package that a file of this name asks for; empty if
// it does not.
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
