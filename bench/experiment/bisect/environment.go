package bisect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/pattern"
	"github.com/vprof/vprof/internal/requirements"
)

// Installer installs releases of packages on top of a Python's environment. Each release has its own folder, so an
// environment is a list of folders, and no release is installed twice.
type Installer struct {
	// Python is the interpreter of the base environment. Cache is the folder of all installed releases.
	Python, Cache string
	// Wheels is a folder to install packages from without a network; if empty, they come from pip's or uv's index.
	Wheels string

	tag  string
	pip  bool
	base Pins
	// needed are the dependencies of the packages that the user named, whether or not the base environment has them.
	needed Pins
}

// describeScript prints the tag of compiled modules, whether pip is installed, and the packages, one per line.
const describeScript = `import importlib.metadata as m, importlib.util, sys, sysconfig
print(sys.implementation.cache_tag + '-' + sysconfig.get_platform())
print(importlib.util.find_spec('pip') is not None)
for d in m.distributions(): print('%s==%s' % (d.metadata['Name'], d.version))`

// InstalledPins returns the packages of the base environment, as reported by its interpreter.
func (i *Installer) InstalledPins(ctx context.Context) (Pins, error) {
	if i.base != nil {
		return i.base, nil
	}
	text, err := commandOutput(ctx, i.Python, "-c", describeScript)
	if err != nil {
		return nil, input.Errorf("cannot list the packages of %s: %w", i.Python, err)
	}
	tag, list, _ := strings.Cut(text, "\n")
	i.tag, i.pip = strings.TrimSpace(tag), strings.HasPrefix(list, "True")
	i.base, i.needed = requirements.PinnedReleases("", []byte(list)), Pins{}
	return i.base, nil
}

// ResolveSpec returns the packages of an environment. The spec is a lock file, optionally at a commit (uv.lock@HEAD~1),
// or changes to the base environment ("trl==1.10 peft==0.18"), whose dependencies are resolved.
func (i *Installer) ResolveSpec(ctx context.Context, spec string) (Pins, error) {
	base, err := i.InstalledPins(ctx)
	if err != nil {
		return nil, err
	}
	pins := maps.Clone(base)
	if strings.ContainsAny(spec, "=<>~") {
		more, err := i.resolve(ctx, strings.Fields(spec))
		if err != nil {
			return nil, input.Errorf("%s: %w", spec, err)
		}
		maps.Copy(pins, more)
		maps.Copy(i.needed, more)
		return pins, nil
	}
	file, commit, committed := strings.Cut(spec, "@")
	var text []byte
	if committed {
		var shown string
		shown, err = commandOutput(ctx, "git", "-C", filepath.Dir(file), "show", commit+":./"+filepath.Base(file))
		text = []byte(shown)
	} else {
		text, err = requirements.Read(file)
	}
	if err != nil {
		return nil, input.Errorf("%s: need packages like trl==1.10, or a lock file (uv.lock, requirements.txt): %w",
			spec, err)
	}
	all := Pins(requirements.PinnedReleases(file, text))
	if len(all) == 0 {
		return nil, input.Errorf("%s: no package in it has a release; give a lock file, or packages like trl==1.10",
			spec)
	}
	maps.Copy(pins, all)
	return pins, nil
}

// resolve returns the releases that pip or uv would install for some requirements.
func (i *Installer) resolve(ctx context.Context, specs []string) (Pins, error) {
	args := append(i.command("--dry-run"), specs...)
	text, err := commandOutput(ctx, args[0], args[1:]...)
	if err != nil {
		return nil, err
	}
	pins := Pins(requirements.PinnedReleases("", []byte(text))) // of uv: " + trl==1.10.0"
	for line := range strings.Lines(text) {                     // of pip: "Would install trl-1.10.0 peft-0.18.0"
		list, ok := strings.CutPrefix(line, "Would install ")
		for _, word := range strings.Fields(list) {
			if at := strings.LastIndexByte(word, '-'); ok && at > 0 {
				pins[requirements.Normalized(word[:at])] = word[at+1:]
			}
		}
	}
	// Requested releases may already be in the base.
	maps.Copy(pins, requirements.PinnedReleases("", []byte(strings.Join(specs, "\n"))))
	return pins, nil
}

// command returns a command line of the interpreter's pip or, without pip, of uv.
func (i *Installer) command(options ...string) []string {
	args := []string{"uv", "pip", "install", "--python", i.Python, "--no-progress"}
	if i.pip {
		args = []string{i.Python, "-m", "pip", "install", "--disable-pip-version-check"}
	}
	if i.Wheels != "" {
		args = append(args, "--no-index", "--find-links", i.Wheels)
	}
	return append(args, options...)
}

// Folder returns the folder of a package's release. It installs the release if the folder is missing.
func (i *Installer) Folder(ctx context.Context, name, release string) (string, error) {
	dir := filepath.Join(i.Cache, i.tag, name+"-"+release)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), ".installing-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(made)
	args := i.command("--no-deps", "--target", made, name+"=="+release)
	if _, err := commandOutput(ctx, args[0], args[1:]...); err != nil {
		return "", fmt.Errorf("%w: %s==%s cannot be installed: %w", ErrUnusable, name, release, err)
	}
	if err := os.Rename(made, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

// Folders returns the folders to put before the base environment's own to get the given environment. NVIDIA's libraries
// are left out, since stubs replace them. Packages that the base lacks are left out unless they are named.
func (i *Installer) Folders(ctx context.Context, pins Pins, named []string) (folders []string, err error) {
	base, err := i.InstalledPins(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(pins)) {
		had, has := base[name]
		_, needed := i.needed[name]
		if strings.HasPrefix(name, "nvidia-") || has && CompareReleases(had, pins[name]) == 0 ||
			!has && !needed && !slices.Contains(named, name) {
			continue
		}
		dir, err := i.Folder(ctx, name, pins[name])
		if err != nil {
			return nil, err
		}
		folders = append(folders, dir)
	}
	return folders, nil
}

// wheelName matches the file name of a wheel or source archive up to the package and its release.
var wheelName = pattern.Lazy(`^([A-Za-z0-9_.]+?)-([0-9][\w.!+]*?)(?:-.*\.whl|\.tar\.gz)$`)

// Releases returns the releases of a package in the index, or in the folder of wheels.
func (i *Installer) Releases(ctx context.Context, name string) (all []string, err error) {
	if i.Wheels != "" {
		files, err := os.ReadDir(i.Wheels)
		for _, f := range files {
			if m := wheelName().FindStringSubmatch(f.Name()); m != nil && requirements.Normalized(m[1]) == name {
				all = append(all, m[2])
			}
		}
		return all, err
	}
	args := []string{"uv", "tool", "run", "--python", i.Python, "pip"}
	if i.pip {
		args = []string{i.Python, "-m", "pip"}
	}
	args = append(args, "index", "versions", "--disable-pip-version-check", name)
	text, err := commandOutput(ctx, args[0], args[1:]...)
	if err != nil {
		return nil, fmt.Errorf("cannot list the releases of %s on the package index: %w", name, err)
	}
	_, list, _ := strings.Cut(text, "Available versions:")
	list, _, _ = strings.Cut(list, "\n")
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }), nil
}

// commandOutput returns the standard output of a command, or an error with the end of its output.
func commandOutput(ctx context.Context, name string, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	text := stdout.String() + stderr.String()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		return "", fmt.Errorf("%w: %s", err, strings.Join(lines[max(0, len(lines)-3):], "; "))
	}
	return text, nil
}
