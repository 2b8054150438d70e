// Command portable checks that vprof compiles for systems other than this one:
//
//	go run ./tools/portable windows/amd64 darwin/arm64
//
// It type-checks all packages and, with -tests, their tests. A build would say the same but compiles every dependency
// for each system, which takes ten times as long; `make dist` makes real builds.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	tests := flag.Bool("tests", false, "check tests, too")
	flag.Parse()
	wrong := 0
	for _, target := range flag.Args() {
		faults, err := check(".", target, *tests, "./...")
		if err != nil {
			fmt.Fprintln(os.Stderr, "portable:", err)
			os.Exit(2)
		}
		for _, fault := range faults {
			fmt.Printf("%s: %s\n", target, fault)
		}
		wrong += len(faults)
	}
	if wrong > 0 {
		fmt.Fprintf(os.Stderr, "portable: %d faults\n", wrong)
		os.Exit(1)
	}
}

// check returns the errors of packages that do not compile for a target, GOOS/GOARCH. Of dependencies it reads only the
// declarations. An error means that nothing was checked.
func check(dir, target string, tests bool, patterns ...string) (faults []string, err error) {
	system, machine, ok := strings.Cut(target, "/")
	if !ok {
		return nil, fmt.Errorf("%s: write GOOS/GOARCH, as windows/amd64", target)
	}
	loaded, err := packages.Load(&packages.Config{
		Mode:  packages.LoadAllSyntax | packages.NeedModule,
		Dir:   dir,
		Env:   append(os.Environ(), "GOOS="+system, "GOARCH="+machine, "CGO_ENABLED=0"),
		Tests: tests,
	}, patterns...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", target, err)
	}
	if len(loaded) == 0 {
		return nil, fmt.Errorf("%s: no packages", target)
	}
	for _, p := range loaded {
		if len(p.CompiledGoFiles) == 0 && len(p.IgnoredFiles) > 0 {
			continue // no file of the package is for the target
		}
		for _, fault := range p.Errors {
			faults = append(faults, fault.Error())
		}
	}
	return faults, nil
}
