package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/script"
)

// withoutFlags are the flags of what a script runs without.
type withoutFlags struct {
	script.Without
	fetch bool
}

func (w *withoutFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&w.Weights, "without-weights", false,
		"put placeholders without values in place of absent weights, without a network")
	f.BoolVar(&w.fetch, "fetch", false,
		"with placeholders, fetch configurations and headers of weights, and no values, from HF_ENDPOINT")
}

// resolve returns what the flags say.
func (w *withoutFlags) resolve() (script.Without, error) {
	if w.fetch && !w.Any() {
		return w.Without, usagef("--fetch is for placeholders: add --without-weights")
	}
	if w.fetch {
		cache, err := os.UserCacheDir()
		if err != nil {
			return w.Without, err
		}
		w.Fetch = filepath.Join(cache, "vprof", "hub")
	}
	return w.Without, nil
}
