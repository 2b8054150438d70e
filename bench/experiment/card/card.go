// Package card describes the memory that a repository's documented training command needs. It runs the command without
// weights, data and GPUs, varies the options of the command's argument parser, and writes the results as a page.
package card

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/pattern"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// Card holds the results of a training command, one row for each setting. Its JSON is the state from which an
// interrupted card resumes.
type Card struct {
	Command Command `json:"command"`
	GPU     string  `json:"gpu"`
	// GPUs is the number of ranks that the command starts. Only the first rank is run.
	GPUs int       `json:"gpus"`
	Rows []Variant `json:"rows"`
	// Options are the options of the command's argument parser.
	Options []script.Option `json:"options,omitempty"`
}

// Variant is the result of the command with one setting.
type Variant struct {
	Setting string   `json:"setting"`
	Args    []string `json:"args"`
	// Result is "fits", or the reason why the row has no numbers.
	Result string `json:"result"`
	// Need is the device bytes, including the context. Training, Evaluation and Saving are the peaks of reserved bytes
	// in these phases; zero if the phase did not run. Host is the largest host memory of any of the processes.
	Need, Training, Evaluation, Saving, Host int64
	// GPUs are the GPUs of the catalog on which the need is safe, smallest memory first.
	GPUs     []string
	Replaced []report.Replaced
}

// settingVariants are memory-saving settings: their flags in argument parsers, and a value if the flag needs one.
var settingVariants = []struct {
	setting string
	flag    func() *regexp.Regexp
	value   string
}{
	{"bf16", pattern.Lazy(`^--(bf16|use_bf16)$`), ""},
	{"mixed precision", pattern.Lazy(`^--(fp16|amp|use_amp|use_fp16)$`), ""},
	{"bf16", pattern.Lazy(`(precision|dtype)$`), "bf16"},
	{"checkpointing", pattern.Lazy(`checkpointing|use_checkpoint|grad_?ckpt`), ""},
	{"LoRA", pattern.Lazy(`^--(use_?)?(lora|peft)$`), ""},
	{"4 bits", pattern.Lazy(`4_?bit|qlora`), ""},
	{"block swap", pattern.Lazy(`blocks_to_swap|block_swap`), "16"},
}

// documentedSetting is the name of the setting in which the command runs as documented.
const documentedSetting = "as documented"

var batchFlag = pattern.Lazy(
	`^--?((global_|total_|per_device_|micro_|local_)?(train_)?(micro_)?batch_?size(_per_gpu|_per_device)?|bs|b)$`)

// deviceFlag matches an option that moves a script from the CPU to a GPU, such as --use-cuda.
var deviceFlag = pattern.Lazy(`^--?(use[_-])?(device|cuda|gpu|accel)$`)

// RunAll runs each setting that the card lacks, until a time. keep is called with the card after each.
func (c *Card) RunAll(ctx context.Context, of script.Command, until time.Time, keep func() error) error {
	c.GPUs = c.rankCount()
	of.GPUs, of.Without.Documented = c.GPUs, c.Command.From != ""
	if err := c.runRow(ctx, of, Variant{Setting: documentedSetting, Args: c.Command.Args}, until, keep); err != nil {
		return err
	}
	first := c.Rows[0]
	at := slices.IndexFunc(c.Options, func(o script.Option) bool { return deviceFlag().MatchString(o.Flag) })
	if strings.Contains(first.Result, "on the CPU") && at >= 0 && !slices.Contains(c.Command.Args, c.Options[at].Flag) {
		flag, value := c.Options[at].Flag, phrase.If(!c.Options[at].Switch, "cuda")
		c.Command.Args, c.Rows = withFlag(c.Command.Args, flag, value), nil
		return c.RunAll(ctx, of, until, keep)
	}
	if first.Need == 0 && !strings.HasPrefix(first.Result, "out of memory") {
		return nil // what the script lacks as documented it lacks in other settings
	}
	isData := func(r report.Replaced) bool { return r.Kind == "data" }
	alike := len(of.Without.Lengths) == 0 && slices.ContainsFunc(first.Replaced, isData)
	if alike && first.Need > 0 && max(first.Evaluation, first.Saving) <= first.Training {
		of.Steps, of.Longest = 2, 0 // the second step has the optimizer's state, and no other phase or batch needs more
	}
	for _, smallest := range []string{"1", "2"} { // batch norm and mixup refuse a single sample
		for _, r := range c.settings(smallest) {
			if err := c.runRow(ctx, of, r, until, keep); err != nil {
				return err
			}
		}
		if !slices.ContainsFunc(c.Rows, func(r Variant) bool { return r.Setting == "batch 1" && r.Need == 0 }) {
			break
		}
	}
	return nil
}

// rankLauncher matches the option that sets the number of ranks in a script that starts its ranks itself.
var rankLauncher = pattern.Lazy(
	`(?:^| )(?:-d|--(?:n_?|num[_-])?(?:gpus|devices)(?:[_-]per[_-]node)?)[= ]([1-9]\d*)(?: |$)`,
)

// rankCount returns the number of ranks that the command starts; 1 if it has no such option.
func (c *Card) rankCount() (n int) {
	if m := rankLauncher().FindStringSubmatch(strings.Join(c.Command.Args, " ")); m != nil {
		n, _ = strconv.Atoi(m[1]) // too large a number is refused with the command
	}
	return max(n, 1)
}

// settings returns the rows to run: all memory-saving options together, a batch as the smallest, and each other option.
func (c *Card) settings(batch string) []Variant {
	var rows []Variant
	all := Variant{Setting: "batch " + batch + " and all of these", Args: c.Command.Args}
	add := func(name, flag, value string) {
		rows = append(rows, Variant{Setting: name, Args: withFlag(c.Command.Args, flag, value)})
		all.Args = withFlag(all.Args, flag, value)
	}
	for _, o := range c.Options {
		key := strings.ReplaceAll(o.Flag, "-", "_")
		if batchFlag().MatchString("--"+strings.TrimLeft(key, "_")) && o.Value != batch && o.Number {
			add("batch "+batch, o.Flag, batch)
		}
	}
	for _, v := range settingVariants {
		for _, o := range c.Options {
			flag, value := "--"+strings.ReplaceAll(strings.TrimLeft(o.Flag, "-"), "-", "_"), v.value
			at := slices.IndexFunc(o.Choices, func(c string) bool { return value != "" && strings.HasPrefix(c, value) })
			switch {
			case !v.flag().MatchString(flag) || o.Value == "True" || value != "" && strings.HasPrefix(o.Value, value):
				continue
			case value == "" && !o.Switch || value != "" && at < 0 && !o.Number:
				continue
			case at >= 0:
				value = o.Choices[at]
			}
			add(v.setting, o.Flag, value)
			break
		}
	}
	if len(rows) > 1 {
		return slices.Insert(rows, 0, all)
	}
	return rows
}

// withFlag returns arguments with a flag set to a value. A flag without a value is only added.
func withFlag(args []string, flag, value string) []string {
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, flag+"=") })
	if at := slices.Index(args, flag); at >= 0 {
		end := at + 1
		if end < len(args) && !strings.HasPrefix(args[end], "-") {
			end++
		}
		args = slices.Delete(args, at, end)
	}
	args = append(args, flag)
	if value != "" {
		args = append(args, value)
	}
	return args
}

func (c *Card) runRow(ctx context.Context, of script.Command, r Variant, until time.Time, keep func() error) error {
	at := slices.IndexFunc(c.Rows, func(known Variant) bool { return slices.Equal(known.Args, r.Args) })
	done := at >= 0 && (c.Rows[at].Need > 0 || at > 0 && !strings.HasPrefix(c.Rows[at].Result, "timeout"))
	if of.Timeout = time.Until(until); of.Timeout <= 0 || done {
		return nil
	}
	of.Args = r.Args
	o, err := script.Run(ctx, of)
	if err != nil {
		return err
	}
	result, err := o.Report(ctx)
	if err != nil {
		return err
	}
	r.fillFromRun(o, result)
	if at < 0 {
		at, c.Rows = len(c.Rows), append(c.Rows, r)
	}
	c.Rows[at] = r
	if r.Setting == documentedSetting {
		c.Options = o.Options()
	}
	return keep()
}

func (r *Variant) fillFromRun(o *script.Outcome, of *report.Report) {
	r.Result, r.Host, r.Replaced = of.Script.Result, of.Script.Host, of.Script.Replaced
	if kind := o.Kind(); kind == script.Untrained || kind == script.Failed && o.MissingObjectText() != "" {
		r.Result = o.ReachedText()
	} else if of.Script.Error != "" {
		r.Result += ": " + failureCause(of.Script.Error, of.Script.Traceback)
	} else if lines := strings.Split(strings.TrimSpace(o.StderrTail), "\n"); o.Kind() == script.Failed {
		r.Result += ": " + strings.TrimSpace(lines[len(lines)-1])
	}
	r.Result = strings.Replace(r.Result, "timeout: KeyboardInterrupt", "timeout before the end of a step,", 1)
	if steps := o.Steps(); o.Kind() == script.TimedOut && len(steps) > 0 {
		r.Result = fmt.Sprintf("timeout after step %d; further steps may need more", steps[0])
	} else if o.Kind() != script.Fits {
		return
	} else if len(steps) == 0 {
		r.Result = cmp.Or(o.MissingObjectText(), "no step of an optimizer and no backward pass ran")
		return
	}
	if len(of.Points) == 0 {
		return
	}
	run := of.Points[0].Run
	r.Need = run.Device
	trials := func(y report.Remedy) bool { return y.What == script.WithoutTrials }
	if at := slices.IndexFunc(of.Script.Remedies, trials); at >= 0 {
		r.Result += "; trials of cudnn.benchmark take up to " + bytesize.Format(r.Need) + " where there is room"
		r.Need -= of.Script.Remedies[at].Saves
	}
	for _, p := range run.Phases {
		to := cmp.Or(map[string]*int64{"evaluation": &r.Evaluation, "saving": &r.Saving}[p.Name], &r.Training)
		*to = max(*to, p.PeakReserved)
	}
	gpus := device.Catalog()
	slices.SortStableFunc(gpus, func(a, b device.GPU) int { return int((a.Memory - b.Memory) >> 20) })
	for _, g := range gpus {
		budget := planner.Budget{Memory: g.Memory, Margin: planner.DefaultMargin}
		if budget.Judge(r.Need-run.Device+run.Reserved+g.Context) == "" {
			r.GPUs = append(r.GPUs, g.Name)
		}
	}
}

var tracebackFrame = pattern.Lazy(`(?m)^ *File "([^"]+)", line (\d+).*\n *(\S.*)$`)

// failureCause describes an exception in one line: the first line of its text, and the source line that raised it.
func failureCause(exception, traceback string) string {
	exception, _, _ = strings.Cut(exception, "\n")
	frames := tracebackFrame().FindAllStringSubmatch(traceback, -1)
	if len(frames) == 0 {
		return exception
	}
	last := frames[len(frames)-1]
	return fmt.Sprintf("%s at %s:%s (%s)", strings.TrimRight(exception, ": "), last[1], last[2], last[3])
}

//go:embed card.md card.html badge.svg
var templates embed.FS

// Write writes the card as "card.md", "card.html" or "badge.svg".
func (c *Card) Write(w io.Writer, name string) error {
	t, err := template.New(name).Funcs(template.FuncMap{
		"size": func(n int64) string { return map[bool]string{true: bytesize.Format(n), false: "-"}[n > 0] },
		"join": strings.Join, "html": template.HTMLEscapeString,
		"cell": func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "|", "\\|"), "\n", " ") },
	}).ParseFS(templates, name)
	if err != nil {
		return err
	}
	return t.Execute(w, c)
}

// SmallestNeed returns the row that needs the least memory; nil if no row has numbers.
func (c *Card) SmallestNeed() (least *Variant) {
	for i, r := range c.Rows {
		if r.Need > 0 && (least == nil || r.Need < least.Need) {
			least = &c.Rows[i]
		}
	}
	return least
}

// Read reads the state of a card from JSON. Rows of another command and unreadable data are ignored.
func (c *Card) Read(data []byte) {
	var kept Card
	if json.Unmarshal(data, &kept) == nil && slices.Equal(kept.Command.Args, c.Command.Args) && kept.GPU == c.GPU {
		c.Rows = kept.Rows
	}
}
