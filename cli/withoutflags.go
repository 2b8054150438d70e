package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/experiment/script"
)

// maxLengths is the number of different sample lengths of placeholder data, which repeat in turn.
const maxLengths = 509

// placeholderFlags are the flags that replace absent files by placeholders.
type placeholderFlags struct {
	script.Without
	fetch   bool
	lengths string
}

func (w *placeholderFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&w.Weights, "without-weights", false,
		"replace absent weights by placeholders without values, without network access")
	f.BoolVar(&w.Data, "without-data", false,
		"replace absent data sets and tokenizers by placeholders, without network access")
	w.registerData(cmd)
}

// registerData adds the flags that describe placeholders.
func (w *placeholderFlags) registerData(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.lengths, "lengths", "", "`lengths` of placeholder samples in tokens: a file of them, or a "+
		"distribution such as lognormal:mean=512,p95=1500 (default: the length to which the script truncates)")
	f.StringVar(&w.Shapes, "data-shapes", "", "JSON `file` that describes the columns, images and samples of absent "+
		"data (see vprof help run)")
	f.BoolVar(&w.fetch, "fetch", false, "fetch configurations and headers of weights from HF_ENDPOINT, no values")
}

func (w *placeholderFlags) resolve() (_ script.Without, err error) {
	switch {
	case w.fetch && !w.Any():
		return w.Without, usagef("--fetch works only with --without-weights or --without-data; add one of them")
	case (w.lengths != "" || w.Shapes != "") && !w.Data:
		return w.Without, usagef("--lengths and --data-shapes work only with --without-data; add it")
	}
	if w.lengths != "" {
		l, err := epoch.ParseLengths(w.lengths)
		if err != nil {
			return w.Without, usagef("--lengths: %w", err)
		}
		w.Lengths = l.Representative(maxLengths)
	}
	if w.Shapes != "" {
		if err := script.CheckShapes(w.Shapes); err != nil {
			return w.Without, usagef("--data-shapes: %w", err)
		}
		if w.Shapes, err = filepath.Abs(w.Shapes); err != nil {
			return w.Without, err
		}
	}
	if w.fetch {
		w.Fetch, err = cacheFolder("hub")
	}
	return w.Without, err
}
