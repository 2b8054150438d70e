package cli

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/internal/requirements"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/stack"
)

// parsedStack are the releases of --stack: of libraries, PyTorch and the driver.
type parsedStack struct {
	libraries     stack.Libraries
	torch, driver string
	// listed are the libraries of a list; nil for a file, which has more than a case depends on.
	listed stack.Libraries
}

// parseReleases reads the value of --stack: a list like torch=2.11,transformers=5.12, a file that requires packages, or
// a Python or its environment.
func parseReleases(ctx context.Context, value string) (parsedStack, error) {
	info, missing := os.Stat(value)
	switch {
	case value == "":
		return parsedStack{}, nil
	case missing != nil && strings.Contains(value, "="):
		return listedReleases(value)
	case missing != nil:
		return parsedStack{}, usagef("invalid %q: need a list like transformers=5.12,trl=1.16 or a file", value)
	}
	names := append([]string{"torch"}, stack.LibraryNames()...)
	var found map[string]string
	var err error
	switch {
	case info.IsDir():
		found, err = requirements.InstalledReleases(ctx, filepath.Join(value, "bin", "python"), names)
	case strings.HasPrefix(filepath.Base(value), "python"):
		found, err = requirements.InstalledReleases(ctx, value, names)
	default:
		found, err = requirements.Versions(value, names)
	}
	if err != nil {
		return parsedStack{}, usageError{err}
	}
	if len(found) == 0 {
		return parsedStack{}, usagef("%s: names no release of a package that changes memory; it must have one of "+
			"torch, %s", value, strings.Join(stack.LibraryNames(), ", "))
	}
	r, err := listedReleases(stack.Libraries(found).String())
	if r.listed = nil; err != nil {
		return r, usagef("%s: %w", value, err)
	}
	return r, nil
}

func listedReleases(list string) (parsedStack, error) {
	var r parsedStack
	var rest []string
	for pair := range strings.SplitSeq(list, ",") {
		name, release, _ := strings.Cut(strings.TrimSpace(pair), "=")
		switch {
		case name == "torch" && release != "":
			r.torch = release
		case name == "driver" && release != "":
			r.driver = release
		default:
			rest = append(rest, pair)
		}
	}
	if rest == nil {
		return r, nil
	}
	var err error
	if r.libraries, err = stack.ParseLibraries(strings.Join(rest, ",")); err != nil {
		return r, usageError{err}
	}
	r.listed = maps.Clone(r.libraries)
	return r, nil
}

// trainingLibraries are the trainers, whose release affects only plans of their own configurations.
var trainingLibraries = []string{"axolotl", "llamafactory", "ms-swift", "torchtune", "torchtitan"}

// libraries returns the releases of --stack that may affect the flags' case. Of trainers, it has only the trainer whose
// configuration is planned.
func (f *caseFlags) libraries() stack.Libraries {
	all := maps.Clone(f.stack.libraries)
	plain := func(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "") }
	maps.DeleteFunc(all, func(name, _ string) bool {
		planned := f.trainer != nil && plain(f.trainer.Trainer) == plain(name)
		return slices.Contains(trainingLibraries, name) && !planned
	})
	return all
}

// checkStack writes a warning if --stack lists libraries that the case does not depend on. Of a file's, it writes none.
func (f *caseFlags) checkStack(a *app, c models.Case) error {
	if f.stack.driver != "" && !f.isCalibrate {
		return usagef("--stack: driver=N works only with vprof calibrate, because no estimate depends on the driver; " +
			"leave it out")
	}
	maps.DeleteFunc(f.stack.listed, func(name, _ string) bool { return c.Stack[name] != "" })
	if len(f.stack.listed) > 0 {
		printable.Fprintf(a.stderr, "vprof: warning: --stack: the memory of %s does not depend on the release of %s\n",
			c.Model, f.stack.listed.Text())
		f.stack.listed = nil // resolve may run again
	}
	return nil
}

// stackFlag is --stack.
type stackFlag struct {
	value string
	parsedStack
}

// String returns the text of the flag's value, for [pflag.Value].
func (f *stackFlag) String() string { return f.value }

// Type returns the kind of value that help shows, for [pflag.Value].
func (f *stackFlag) Type() string { return "text" }

// Set parses the value of --stack, for [pflag.Value].
func (f *stackFlag) Set(value string) (err error) {
	f.value = value
	f.parsedStack, err = parseReleases(context.Background(), value)
	return err
}
