package cli

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
)

// lengthFlags describe the lengths of the data set's samples.
type lengthFlags struct {
	source, batching string
	multiple         int64
}

func (f *lengthFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.source, "lengths", "", "replay epochs over samples of different `lengths`: a file with one "+
		"length a line, or a distribution such as lognormal:mean=512,p95=1500")
	flags.StringVar(&f.batching, "batching", string(epoch.Padded), "`kind` of batches: padded (to the longest "+
		"sample), grouped (samples of similar length, padded), packed (several samples in a sequence)")
	flags.Int64Var(&f.multiple, "pad-to-multiple-of", 1, "pad sequences to a multiple of `n` tokens")
	completeFlag(cmd, "batching", func() []string {
		return lists.Map(epoch.Batchings(), func(b epoch.Batching) string { return string(b) })
	})
}

// read reads the lengths; nil if no flag sets them.
func (f *lengthFlags) read(cmd *cobra.Command, c *caseFlags, m models.Model) (*epoch.Lengths, error) {
	if f.source == "" {
		return nil, refuseFlags(cmd.Flags(), "--%s works only with --lengths; add the lengths of the samples",
			"batching", "pad-to-multiple-of")
	}
	if t := c.trainer; t != nil && !cmd.Flags().Changed("batching") {
		f.batching = t.Batching()
	}
	if t := c.trainer; t != nil && !cmd.Flags().Changed("pad-to-multiple-of") {
		n, err := strconv.ParseInt(t.PadToMultiple(), 10, 64)
		if err != nil {
			return nil, usagef("%s: vprof cannot use %q for --pad-to-multiple-of; give the flag", t.File,
				t.PadToMultiple())
		}
		f.multiple = n
	}
	if !slices.Contains(epoch.Batchings(), epoch.Batching(f.batching)) {
		return nil, usagef("--batching: unknown %q; use padded, grouped or packed", f.batching)
	}
	const most = 1 << 16
	if f.multiple < 1 || f.multiple > most {
		return nil, usagef("--pad-to-multiple-of: %d is out of range; need 1 to %d", f.multiple, most)
	}
	setting, source := "", f.source
	if name, rest, ok := strings.Cut(source, "="); ok && slices.ContainsFunc(m.Settings, func(s models.Setting) bool {
		return s.Name == name
	}) {
		setting, source = name, rest
	}
	l, err := epoch.ParseLengths(source)
	if err != nil {
		return nil, usagef("--lengths: %w", err)
	}
	given, err := c.givenSettings()
	if err != nil {
		return nil, err
	}
	_, chosen := given[hf.Padding]
	l.Setting, l.Batching = setting, epoch.Batching(f.batching)
	l.Masked = !chosen && c.trainer == nil // rules for trainers know the kind of attention
	if f.multiple > 1 {
		l.Multiple = f.multiple
	}
	return l, nil
}
