package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/asking"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/capture"
	"github.com/vprof/vprof/models/pt2"
	"github.com/vprof/vprof/models/pt2/cudnnanswers"
	"github.com/vprof/vprof/profiler/stack"
)

type askOptions struct {
	app            *app
	c              caseFlags
	batch          batchFlag
	target         gpuFlags
	asker          capture.Asking
	repeatAnswered bool
}

func newCaptureAskCmd(a *app) *cobra.Command {
	o := &askOptions{app: a}
	var print bool
	cmd := &cobra.Command{
		Use:   "ask MODEL.pt2",
		Short: "Ask the cuDNN of your Python, without a GPU, and keep the answers beside the model",
		Args: func(_ *cobra.Command, args []string) error {
			if print || len(args) == 1 && o.c.model == "" || len(args) == 0 && o.c.model != "" {
				return nil
			}
			return usagef("name one .pt2 file to ask about, for example convnext.pt2")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if print {
				_, err := io.WriteString(a.stdout, capture.AskScript)
				return err
			}
			if len(args) == 1 {
				o.c.model = args[0]
			}
			return o.run(cmd.Context())
		},
	}
	o.c.ownRankFlags = true
	o.c.register(cmd, a)
	o.batch.register(cmd, "1..64x2, or the model's own where that is fixed")
	o.target.register(cmd, "`GPUs`: a list like rtx-3090,a100-40, or all (see vprof gpus)")
	cmd.Flags().StringVar(&o.asker.Python, "python", "",
		"Python `interpreter` whose cuDNN is asked (default: python3 or python of the PATH)")
	cmd.Flags().StringVar(&o.asker.Library, "cudnn", "", "libcudnn.so.9 `file` to ask, instead of your Python's")
	cmd.Flags().BoolVar(&o.repeatAnswered, "again", false, "also ask about convolutions that already have an answer")
	cmd.Flags().BoolVar(&print, "print-script", false, "print the Python script that asks cuDNN, and exit")
	cmd.Flags().BoolVar(&o.asker.Verbose, "verbose", false, "show all output of Python")
	return cmd
}

func (o *askOptions) run(ctx context.Context) error {
	file := strings.TrimPrefix(o.c.model, pt2.Scheme+":")
	if filepath.Ext(file) != pt2.Suffix {
		return usagef("%s: need a .pt2 file (vprof capture makes one)", o.c.model)
	}
	m, c, err := o.c.resolve(o.app)
	if err != nil {
		return err
	}
	precisions := models.AutocastPrecisions()
	if o.c.flags.Changed("amp") || c.Weights != "" {
		precisions = []models.Autocast{c.AMP}
	}
	q := cudnnQuestions{file: file}
	if q.Setups, err = setupsByPrecision(o.app, m, c, precisions); err != nil {
		return err
	}
	if q.GPUs, err = o.target.gpus(); err != nil {
		return err
	}
	if q.Batches, err = o.batch.sizes(defaultAskBatches(m)); err != nil {
		return err
	}
	q.SkipRefused, q.RepeatAnswered = o.batch.list == "", o.repeatAnswered
	return ask(ctx, o.app, o.asker, q)
}

func defaultAskBatches(m models.Model) []int {
	return slices.DeleteFunc(slices.Clone(m.Batches), func(n int) bool { return n > 64 && len(m.Batches) > 1 })
}

func setupsByPrecision(a *app, m models.Model, c models.Case, precisions []models.Autocast) ([]*step.Setup, error) {
	var setups []*step.Setup
	for _, c.AMP = range precisions {
		s, err := step.New(m, c, step.Evidence{Residuals: a.residuals})
		if err != nil {
			return nil, err
		}
		setups = append(setups, s)
	}
	return setups, nil
}

// cudnnQuestions has the questions to cuDNN about a model's file.
type cudnnQuestions struct {
	file string
	asking.Options
}

// maxAutomaticQuestions is the largest number of questions that a capture asks by itself, at a millisecond or two each.
const maxAutomaticQuestions = 2000

// askAfterCapture asks cuDNN about a file that was just captured. A missing cuDNN, or a file without questions, is an
// error only if GPUs were named.
func askAfterCapture(ctx context.Context, o *captureOptions, file string) error {
	a, asker := o.app, capture.Asking{Python: o.Python, Library: o.cudnnLibrary, Verbose: o.Verbose}
	options := asking.Options{SkipRefused: true}
	gpus := o.gpus
	if gpus == "" {
		gpus, options.MaxQuestions = strings.Join(defaultAskGPUs, ","), maxAutomaticQuestions
	}
	var err error
	if options.GPUs, err = (&gpuFlags{gpu: gpus}).gpus(); err != nil {
		return err
	}
	m, err := a.models().Lookup(file)
	if err != nil {
		return nil // what the file lacks is said where it is planned
	}
	c := m.DefaultCase()
	if options.Setups, err = setupsByPrecision(a, m, c, models.AutocastPrecisions()); err == nil {
		options.Batches = defaultAskBatches(m)
		slices.Reverse(options.Batches)
		err = ask(ctx, a, asker, cudnnQuestions{file, options})
	}
	var usage usageError
	if o.gpus == "" && errors.As(err, &usage) {
		printable.Fprintf(a.stdout, "note: workspaces of convolutions are modeled: %s\n", usage.Error())
		return nil
	}
	return err
}

// ask asks cuDNN and stores its answers beside the model.
func ask(ctx context.Context, a *app, asker capture.Asking, q cudnnQuestions) error {
	if a.localCuDNN != nil {
		a.localCuDNN.Silent = true
	}
	topics, err := asking.CollectQuestions(ctx, q.Options)
	if err != nil {
		return err
	}
	file := cudnnanswers.FileOf(q.file)
	bar := startProgress(a, asker.Verbose)
	defer bar.end()
	for i, t := range topics {
		bar.step("cuDNN is asked about convolutions", i, len(topics))
		if len(t.Questions) == 0 {
			if q.MaxQuestions == 0 {
				printable.Fprintf(a.stdout, "sm_%d: nothing left to ask\n", t.Generation)
			}
			continue
		}
		version, bytes, err := asker.Ask(ctx, t.Generation, t.Questions)
		if errors.As(err, new(*capture.RefusedError)) {
			return usageError{err}
		}
		if err != nil {
			return err
		}
		s := cudnnanswers.Set{CuDNN: version, Capability: t.Generation, Bytes: map[string]int64{}}
		for i, n := range bytes {
			if n >= 0 {
				s.Bytes[t.Questions[i].String()] = n
			}
		}
		if err := cudnnanswers.Save(ctx, file, s); err != nil {
			return err
		}
		if a.localCuDNN != nil && asker.Library == "" {
			if err := a.localCuDNN.Remember(asker.Python); err != nil {
				return err
			}
		}
		printable.Fprintf(a.stdout, "sm_%d: cuDNN %s gave the workspaces of %d convolutions (forward and backward); "+
			"%s\n", t.Generation, version, len(s.Bytes), torchReleasesWithCuDNN(version))
	}
	return nil
}

func torchReleasesWithCuDNN(version string) string {
	same := lists.Filter(stack.All(), func(s *stack.Stack) bool { return s.Versions().CuDNN == version })
	releases := lists.Map(same, (*stack.Stack).Release)
	switch {
	case len(releases) == 0:
		return "no release of PyTorch that is known comes with it"
	case slices.Contains(releases, stack.Default().Release()):
		return "for PyTorch " + strings.Join(releases, ", ")
	}
	return fmt.Sprintf("for PyTorch %s: plan with --torch %s", strings.Join(releases, ", "), releases[len(releases)-1])
}
