// Package requirements finds the releases of packages that a Python project requires, or that a Python interpreter has.
package requirements

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/input"
)

// ErrNotFound reports that no file of a project names the package.
var ErrNotFound = errors.New("no release is required of this package")

// maxBytes of a file are read: lock files of large projects have a few MiB.
const maxBytes = 64 << 20

// Find searches for a package in the files of a project's folder: uv.lock, which has exact releases, then
// requirements.txt and pyproject.toml. The release has no operator: 2.11.0 for ==2.11.0 and for >=2.11.0.
func Find(dir, name string) (release string, err error) {
	for _, file := range []string{"uv.lock", "requirements.txt", "pyproject.toml"} {
		text, err := Read(filepath.Join(dir, file))
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

// Read reads a file of requirements, of limited size.
func Read(path string) ([]byte, error) { return input.ReadUpTo(path, maxBytes) }

// Versions returns the releases that a file requires of packages, by the package's name.
func Versions(path string, names []string) (map[string]string, error) {
	text, err := Read(path)
	if err != nil {
		return nil, err
	}
	return versions(path, text, names), nil
}

func versions(file string, text []byte, names []string) map[string]string {
	all := map[string]string{}
	for _, name := range names {
		if v := Version(file, text, name); v != "" {
			all[name] = v
		}
	}
	return all
}

// packageAliases are patterns of the names that packages have in some files.
var packageAliases = map[string]string{
	"torch": "(?:py)?torch", "cudnn": `(?:nvidia-cudnn-cu\d+|cudnn)`, "cuda": "cuda-version",
}

// patterns find the release of a package NAME by the kind of a file: a lock file with tables (uv.lock, poetry.lock),
// pyproject.toml, one of conda's environments or pixi's lock file, and requirements.txt. OP are the signs before it.
var patterns = map[string]string{
	".lock": `(?m)^name = "NAME"\r?\nversion = "(\d[\w.!+]*)"|^\s*name: NAME\r?\n\s*version: ["']?(\d[\w.+]*)|` +
		`/NAME-(\d[\w.+%]*)-[^/\s]*\.(?:conda|whl|tar\.bz2)\s*$`,
	".toml": `(?m)(?:["']NAME(?:\[[\w, -]*\])?\s*(?:OP)|^NAME\s*=\s*["'][=\^~> ]*)\s*v?(\d[\w.+]*)`,
	".yml":  `(?m)^\s*-\s*["']?(?:[\w-]+::)?NAME(?:\[[\w, -]*\])?\s*(?:OP|=)\s*v?(\d[\w.+]*)`,
	"":      `(?m)^[\s+]*"?NAME(?:\[[\w, -]*\])?\s*(?:OP)\s*v?(\d[\w.!+]*)`,
}

// gitTag finds a release's tag in the address of a package's repository: git+https://github.com/x/NAME.git@v5.1.0.
const gitTag = `|^[^#\n]*git\+\S+/NAME(?:\.git)?@v?(\d+\.[\w.]*)`

// find returns the name, if the pattern has a group for it, and the release of each match in a file.
func find(file string, text []byte, name, signs string) [][][]byte {
	kind := strings.Replace(filepath.Ext(file), ".yaml", ".yml", 1)
	pattern := cmp.Or(patterns[kind], patterns[""]) + gitTag
	pattern = strings.NewReplacer("NAME", name, "OP", signs).Replace(pattern)
	return regexp.MustCompile(pattern).FindAllSubmatch(text, -1)
}

// Version returns the release of a package that the file requires; empty if it requires none.
func Version(file string, text []byte, name string) string {
	name = cmp.Or(packageAliases[name], strings.ReplaceAll(regexp.QuoteMeta(name), "-", "[-_]"))
	for _, place := range find(file, text, name, "[=~>]{1,2}") {
		for _, v := range place {
			if len(v) > 0 && v[0] >= '0' && v[0] <= '9' {
				return string(v)
			}
		}
	}
	return ""
}

var hyphen = regexp.MustCompile(`[-_.]+`)

// Normalized returns the name of a package as package indexes write it.
func Normalized(name string) string { return strings.ToLower(hyphen.ReplaceAllString(name, "-")) }

// PinnedReleases returns the exact releases of a lock file (uv.lock, poetry.lock, pylock.toml), a list of requirements
// or a conda environment, by the normalized names of packages. If a package is named twice, the first counts.
func PinnedReleases(file string, text []byte) map[string]string {
	pins := map[string]string{}
	for _, place := range find(strings.Replace(file, ".toml", ".lock", 1), text, `([A-Za-z0-9][\w.-]*?)`, "===?") {
		for at := 1; at < len(place); at += 2 {
			name := Normalized(string(place[at]))
			if _, known := pins[name]; len(place[at]) > 0 && !known {
				pins[name] = string(place[at+1])
			}
		}
	}
	return pins
}

// listScript prints the distributions that a Python has, a line each.
const listScript = `import importlib.metadata as m
for d in m.distributions(): print('%s==%s' % (d.metadata['Name'], d.version))`

// InstalledReleases returns the releases of packages that a Python interpreter has. It runs the interpreter.
func InstalledReleases(ctx context.Context, python string, names []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	text, err := exec.CommandContext(ctx, python, "-c", listScript).Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages of %s: %w", python, err)
	}
	return versions("", text, names), nil
}
