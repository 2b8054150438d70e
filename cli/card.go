package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/card"
	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/device"
)

// tryTime is the time after which no further documented command is tried if none gave a card.
const tryTime = 30 * time.Second

// cardOptions are the flags of vprof card.
type cardOptions struct {
	app     *app
	gpu     string
	folder  string
	yes     bool
	limit   time.Duration
	without placeholderFlags
}

func newCardCmd(a *app) *cobra.Command {
	o := &cardOptions{app: a}
	cmd := &cobra.Command{
		Use:   "card [DIR] [-- COMMAND ARGS...]",
		Short: "Report what GPU memory a repository's training needs, without its weights, data and GPUs",
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) == 0 || at > 1 || at < 0 && len(args) > 1 {
				return usagef("name one folder, or the command after --, for example: vprof card -- python train.py")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, command := ".", args
			if cmd.ArgsLenAtDash() != 0 {
				folder, command = args[0], args[1:]
			}
			return runCard(cmd.Context(), o, folder, command)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.gpu, "gpu", "b200", "simulate this `GPU`; its memory should hold every setting (see vprof gpus)")
	f.StringVar(&o.folder, "output", "vprof-card",
		"write the card into this `folder`; an interrupted card resumes from it")
	f.BoolVar(&o.yes, "yes", false, "run the training command found in DIR without asking")
	f.DurationVar(&o.limit, "time", 10*time.Minute, "end all runs after this `time`, like 30m; finished steps count")
	completeFlag(cmd, "gpu", device.Names)
	o.without.Weights, o.without.Data = true, true
	o.without.registerData(cmd)
	return cmd
}

// runCard makes the card of a command in a folder; without one, of the first that the folder documents.
func runCard(ctx context.Context, o *cardOptions, folder string, command []string) error {
	gpu, err := device.Lookup(o.gpu)
	if err != nil {
		return err
	}
	of := script.Command{GPU: gpu, Steps: defaultSteps, Longest: maxSearchTime, Stdout: io.Discard}
	if of.Without, err = o.without.resolve(); err != nil {
		return err
	}
	if o.folder, err = filepath.Abs(o.folder); err != nil {
		return err
	}
	root, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	found := []card.Command{{Args: command}}
	if len(command) == 0 {
		if found, err = card.Find(folder); err != nil {
			return err
		}
		for _, f := range found {
			fmt.Fprintf(o.app.stdout, "%s: %s\n", f.From, strings.Join(f.Args, " "))
		}
		if !o.yes {
			fmt.Fprintln(o.app.stdout, "run the first that gives a card with --yes, or name another after --")
			return nil
		}
	}
	if of.Stubs, err = unpackStubLibraries(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.folder, 0o755); err != nil {
		return err
	}
	began := time.Now()
	var reason error // of the first command
	for i, command := range found {
		c := &card.Card{Command: command, GPU: gpu.Name}
		err := o.runIn(ctx, filepath.Join(root, command.Dir), c, of, began, i == 0)
		if err == nil && c.SmallestNeed() != nil {
			return o.write(c)
		}
		if err == nil {
			err = usagef("no card was written, because the documented training did not run: %s", c.Rows[0].Result)
		}
		reason = cmp.Or(reason, err)
		if ctx.Err() != nil || time.Since(began) > min(tryTime, o.limit/2) {
			break
		}
	}
	return reason
}

// runIn runs a card's command in a folder. A command after the first ends if it has no step soon enough.
func (o *cardOptions) runIn(
	ctx context.Context, folder string, c *card.Card, of script.Command, began time.Time, isFirst bool,
) error {
	within, end := context.WithCancel(ctx)
	defer end()
	late := time.AfterFunc(time.Until(began.Add(2*tryTime)), end)
	if isFirst {
		late.Stop()
	}
	progress := &eventPrinter{to: o.app.stderr}
	of.OnEvent = func(e script.Event) {
		progress.print(e)
		if e.Name == "step" {
			late.Stop()
		}
	}
	if err := os.Chdir(folder); err != nil {
		return err
	}
	return o.run(within, c, of, began.Add(o.limit))
}

// run runs the settings of a card's command, and keeps the card after each.
func (o *cardOptions) run(ctx context.Context, c *card.Card, of script.Command, until time.Time) error {
	fmt.Fprintln(o.app.stderr, "vprof: running", strings.Join(c.Command.Args, " "))
	state := filepath.Join(o.folder, "card.json")
	if data, err := os.ReadFile(state); err == nil {
		c.Read(data)
	}
	return c.RunAll(ctx, of, until, func() error {
		r := c.Rows[len(c.Rows)-1]
		fmt.Fprintf(o.app.stderr, "vprof: %s: %s\n", r.Setting, r.Result)
		return report.WriteFile(state, func(w io.Writer) error { return json.NewEncoder(w).Encode(c) })
	})
}

// write writes a card's files, and prints it.
func (o *cardOptions) write(c *card.Card) error {
	for _, name := range []string{"card.md", "card.html", "badge.svg"} {
		err := report.WriteFile(filepath.Join(o.folder, name), func(w io.Writer) error { return c.Write(w, name) })
		if err != nil {
			return err
		}
	}
	return c.Write(o.app.stdout, "card.md")
}
