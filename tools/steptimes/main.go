// Command steptimes fits the table of kernel parameters in profiler/planner/steptime to measured kernels and steps.
//
// It reads measurements of single kernels (kernels.csv.gz) and of steps (records with step_ms, and steps.jsonl),
// changes one parameter after the other to the value with the least mean error until none gains enough, and prints the
// table. With -judge it changes nothing and prints the errors, for steps also with tables fitted without their family
// of models.
package main

import (
	"flag"
	"fmt"
	"log"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner/steptime"
	"github.com/vprof/vprof/profiler/program"
)

// A measurement is a kernel or a step with its measured time.
type measurement struct {
	// family is the group of rows that is held out together, source the file of the row.
	family, source, label string
	gpu                   device.GPU
	program               *program.Program
	// step is the index of the timed step in the program; -1 for a kernel, which is the program's only op.
	step    int
	seconds float64
	// held reports whether the row is only used for evaluation.
	held bool
	// load is the step's work by fitted parameter; nil outside a fit.
	load *steptime.Load
}

func (m *measurement) estimate(k steptime.Kernels) float64 {
	switch {
	case m.step < 0:
		return k.Seconds(m.program, m.gpu)[0]
	case m.load != nil:
		return k.Efficiency().Time(*m.load).Seconds
	}
	return k.Efficiency().Time(k.Load(m.program, m.gpu, m.step)).Seconds
}

// works lists the classes of kernels that a parameter affects; a parameter without an entry affects all.
var works = map[string][]program.Work{
	"reduction": {program.Reduction}, "softmax": {program.Softmax}, "index": {program.Index},
	"row-norm": {program.Normalization}, "row": {program.Normalization}, "channel-norm": {program.Normalization},
	"depthwise": {program.Convolution}, "depthwise-rate": {program.Convolution},
	"depthwise-last": {program.Convolution}, "unaligned": {program.Convolution}, "grouped": {program.Convolution},
	"convolution": {program.Convolution}, "transposes": {program.Convolution},
	"matmul": {program.Matmul}, "attention": {program.Attention},
	"feed": {program.Matmul, program.Convolution}, "fill": {program.Matmul, program.Convolution},
	"launch": {}, "operator": {}, "module": {}, // these do not change the load
}

// affected returns the indices of the steps whose load depends on a parameter of some GPUs.
func affected(rows []measurement, parameter, gpus string) (found []int) {
	of, some := works[parameter]
	for i := range rows {
		m := &rows[i]
		named := gpus == m.gpu.Generation || strings.Contains("|"+gpus+"|", "|"+m.gpu.Name+"|")
		if m.load == nil || !named && gpus != "*" && gpus != "gddr" {
			continue
		}
		if !some || slices.ContainsFunc(of, func(w program.Work) bool { return m.load.Seconds[w] > 0 }) {
			found = append(found, i)
		}
	}
	return found
}

// set changes a parameter and recomputes the loads that depend on it. It returns the previous loads by index.
func set(k steptime.Kernels, rows []measurement, cells []string, value float64) (before map[int]*steptime.Load) {
	k.Set(cells[0], cells[1], cells[2], value)
	before = map[int]*steptime.Load{}
	for _, i := range affected(rows, cells[0], cells[1]) {
		m := &rows[i]
		load := k.Load(m.program, m.gpu, m.step)
		before[i], m.load = m.load, &load
	}
	return before
}

// miss returns the logarithm of estimate / measurement.
func (m *measurement) miss(k steptime.Kernels) float64 { return math.Log(m.estimate(k) / m.seconds) }

// inside reports whether the measurement is within the estimate's interval.
func (m *measurement) inside(k steptime.Kernels) bool {
	e := k.Efficiency().Time(k.Load(m.program, m.gpu, m.step))
	return e.Low <= m.seconds && m.seconds <= e.High
}

// hostBound reports whether the step is limited by the host.
func (m *measurement) hostBound(k steptime.Kernels) bool {
	return m.step >= 0 && k.Efficiency().HostBound(k.Load(m.program, m.gpu, m.step))
}

func main() {
	log.SetFlags(0)
	judge := flag.Bool("judge", false, "print errors instead of a fitted table")
	family := flag.String("family", "", "with -judge, hold out this family alone")
	data := flag.String("data", "bench/reference/data", "folder of records")
	file := flag.String("table", "profiler/planner/steptime/kernels.csv", "table to begin with")
	picture := flag.String("picture", "", "only draw estimates against measurements to a file")
	steps := flag.String("steps", "", "further rows of steps, a jsonl file; models are relative to its folder")
	flag.Parse()
	text, err := os.ReadFile(*file)
	check(err)
	kernels, err := readKernels(filepath.Join(*data, "times", "kernels.csv.gz"))
	check(err)
	timed := records(*data, "h100/steps.jsonl", "h100/largest.jsonl")
	for _, rows := range []string{
		filepath.Join(*data, "times", "steps.jsonl"), filepath.Join(*data, "times", "timm.jsonl"), *steps,
	} {
		timed = append(timed, stepRows(rows)...)
	}
	if *picture != "" {
		check(os.WriteFile(*picture, []byte(draw(string(text), timed)), 0o644))
		return
	}
	if *judge {
		judgeAll(string(text), kernels, timed, *family)
		return
	}
	fmt.Print(refit(string(text), kernels, timed))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// most is the largest absolute log error that counts in full; larger ones are limited, so that outliers do not
// dominate.
const most = 0.5

// loss returns the mean absolute log error over families, which have equal weight.
func loss(rows []measurement, k steptime.Kernels) float64 {
	sum, count := map[string]float64{}, map[string]float64{}
	for i := range rows {
		sum[rows[i].family] += min(most, math.Abs(rows[i].miss(k)))
		count[rows[i].family]++
	}
	total := 0.0
	for _, family := range slices.Sorted(maps.Keys(sum)) {
		total += sum[family] / count[family]
	}
	return total / float64(len(sum))
}

// Each step of a fit lowers the loss by at least leastGain. A value that the table has is only replaced for a larger
// gain: with leastGain the loss is 6 % lower on the steps of the fit, and higher on steps of 24 other models.
const (
	leastGain  = 1e-5
	refitsGain = 1e-3
)

// refit fits a table again until it stays the same.
func refit(text string, kernels, steps []measurement) string {
	for {
		before := text
		text = fit(fit(text, kernels, "kernels", refitsGain), steps, "steps", refitsGain)
		if text == before {
			return text
		}
	}
}

// fit fits the rows of a table whose source begins with kind, and returns the table's new text. Values that lower the
// loss by less than gain are not taken.
func fit(text string, rows []measurement, kind string, gain float64) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	k, err := steptime.ReadKernels(text)
	check(err)
	rows = slices.DeleteFunc(slices.Clone(rows), func(m measurement) bool { return m.held })
	for i := range rows {
		if m := &rows[i]; m.step >= 0 {
			load := k.Load(m.program, m.gpu, m.step)
			m.load = &load
		}
	}
	best := loss(rows, k)
	for factor := 1.3; factor > 1.01; factor = math.Pow(factor, 0.6) {
		for i, line := range lines[1:] {
			cells := strings.SplitN(line, ",", 5)
			if !strings.HasPrefix(cells[4], kind) || cells[0] == "spread" { // "spread" does not change estimates
				continue
			}
			value, err := strconv.ParseFloat(cells[3], 64)
			check(err)
			for _, v := range []float64{rounded(value * factor), rounded(value / factor)} {
				if v > limit(cells[0]) {
					continue
				}
				before := set(k, rows, cells, v)
				if l := loss(rows, k); l < best-gain {
					best, value = l, v
					continue
				}
				k.Set(cells[0], cells[1], cells[2], value)
				for i, load := range before {
					rows[i].load = load
				}
			}
			cells[3] = digits(value)
			lines[i+1] = strings.Join(cells, ",")
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// digits formats a value with the digits of the table.
func digits(value float64) string { return strconv.FormatFloat(value, 'g', 3, 64) }

// rounded returns a value as the table prints it, so that a fit tries only such values.
func rounded(value float64) float64 {
	v, err := strconv.ParseFloat(digits(value), 64)
	check(err)
	return v
}

// neutral returns the table with default values in place of those fitted to steps, so that a fit without a family of
// models starts without information from it.
func neutral(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines[1:] {
		cells := strings.SplitN(line, ",", 5)
		if !strings.HasPrefix(cells[4], "steps") || cells[0] == "spread" {
			continue
		}
		switch cells[0] {
		case "feed":
			cells[3] = "4"
		case "transposes":
			cells[3] = "1"
		case "depthwise-rate":
			cells[3] = "0.1"
		case "launch":
			cells[3] = "5e-6"
		case "row":
			cells[3] = "1e-6"
		case "operator", "module":
			cells[3] = "3e-5"
		default:
			cells[3] = "0.6"
		}
		lines[i+1] = strings.Join(cells, ",")
	}
	return strings.Join(lines, "\n") + "\n"
}

// limit returns the largest value of a parameter: no kernel is faster than the GPU's peak.
func limit(parameter string) float64 {
	switch parameter {
	case "feed", "fill", "transposes", "depthwise-rate", "row":
		return math.Inf(1)
	}
	return 0.97
}

func judgeAll(text string, kernels, steps []measurement, only string) {
	k, err := steptime.ReadKernels(text)
	check(err)
	summarize("kernels", kernels, k)
	summarize("steps, by the table", steps, k)
	list(steps, k)
	families := map[string]bool{}
	for _, m := range steps {
		families[m.family] = families[m.family] || !m.held
	}
	maps.DeleteFunc(families, func(name string, fits bool) bool { return !fits || only != "" && name != only })
	var all, host []float64
	inside := 0
	for _, family := range slices.Sorted(maps.Keys(families)) {
		var rest, out []measurement
		for _, m := range steps {
			if m.family == family {
				out = append(out, m)
			} else {
				rest = append(rest, m)
			}
		}
		// Fit twice: one fit changes a parameter by a factor of two at most.
		held, err := steptime.ReadKernels(fit(fit(neutral(text), rest, "steps", leastGain), rest, "steps", leastGain))
		check(err)
		for i := range out {
			if out[i].inside(held) {
				inside++
			}
			if miss := math.Abs(out[i].miss(held)); out[i].hostBound(held) {
				host = append(host, miss)
			} else {
				all = append(all, miss)
			}
		}
		summarize("  held out: "+family, out, held)
		list(out, held)
	}
	fmt.Println(quantiles("steps that the GPU holds up, each family held out", all))
	fmt.Println(quantiles("steps that the host holds up, each family held out", host))
	fmt.Printf("intervals hold %d of these %d steps\n", inside, len(all)+len(host))
}

// list prints the error of each step's estimate.
func list(steps []measurement, k steptime.Kernels) {
	for i := range steps {
		m := &steps[i]
		fmt.Printf("  %-60s %10.2f ms %+5.0f %%\n", m.label, 1e3*m.seconds, 100*(math.Exp(m.miss(k))-1))
	}
}

func summarize(title string, rows []measurement, k steptime.Kernels) {
	byGroup := map[string][]float64{}
	for i := range rows {
		byGroup[rows[i].source] = append(byGroup[rows[i].source], math.Abs(rows[i].miss(k)))
	}
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		fmt.Println(quantiles(title+", "+group, byGroup[group]))
	}
}

func quantiles(title string, misses []float64) string {
	if len(misses) == 0 {
		return title + ": no rows"
	}
	slices.Sort(misses)
	at := func(q float64) float64 {
		x := q * float64(len(misses)-1)
		low, high := misses[int(x)], misses[int(math.Ceil(x))]
		return 100 * (math.Exp(low+(high-low)*(x-math.Floor(x))) - 1)
	}
	return fmt.Sprintf("%-64s %5d rows, error median %5.1f %%, 90 %% %5.1f %%", title, len(misses), at(0.5), at(0.9))
}
