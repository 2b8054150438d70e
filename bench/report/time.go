package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
)

// TimesSchema names the format of a time table.
const TimesSchema = "vprof.times/v1"

// Times is a table of training times on GPUs.
type Times struct {
	Schema  string    `json:"schema" jsonschema:"const=vprof.times/v1"`
	Tool    Tool      `json:"tool"`
	Started time.Time `json:"started"`
	Case    Case      `json:"case"`
	Devices []Device  `json:"devices"`
	// Dataset is the number of samples of an epoch; absent if it was not given.
	Dataset int64 `json:"dataset_size,omitempty"`
	// Price is a GPU-hour's price in the user's currency, Prices the prices of single GPUs; absent without --price.
	Price  float64            `json:"price_per_hour,omitempty"`
	Prices map[string]float64 `json:"prices_per_hour,omitempty"`
	Rows   []TimeRow          `json:"rows"`
	// Coefficients are the efficiencies on the first GPU.
	Coefficients []Coefficient `json:"coefficients"`
	SettingsFrom
}

// Seconds is a time with its expected range.
type Seconds struct {
	Seconds float64 `json:"seconds"`
	Low     float64 `json:"low_seconds"`
	High    float64 `json:"high_seconds"`
}

// Cost is an amount in the currency of the price, with its expected range.
type Cost struct {
	Amount float64 `json:"amount"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// TimeRow is a training stage on a GPU; stage "all" is the sum of the others.
type TimeRow struct {
	Device string `json:"device"`
	Stage  string `json:"stage"`
	// Batch is the batch size; zero if none fits.
	Batch int  `json:"batch"`
	Fits  bool `json:"fits"`
	// Unsafe is why the batch is not safe, and Decides the moment that makes it unsafe; absent if it is safe.
	Unsafe  Reason    `json:"unsafe,omitempty" jsonschema:"enum=over-share,enum=gpu-full,enum=oom,enum=gives-back,enum=not-recorded,enum=host-full,enum=smaller-batch"`
	Decides *Decision `json:"decides,omitempty"`
	// Loop is the training loop that is timed, the one that needs most memory; absent if a flag chose it.
	Loop models.Loop `json:"loop,omitempty"`
	// Refused is the reason why the GPU or the stage cannot train the case at all; absent if it can.
	Refused string `json:"refused,omitempty"`
	// Memory are the estimated device bytes.
	Memory int64 `json:"device_bytes"`
	// Step is the time of an optimizer step with all its micro-batches; absent if the GPU's speed is not known.
	// Roofline is its lower bound.
	Step     *Seconds `json:"step,omitempty"`
	Roofline float64  `json:"roofline_seconds,omitempty"`
	Launches int      `json:"launches,omitempty"`
	// EagerKernels is why a step under torch.compile is timed by the kernels of the eager step; absent with its own.
	EagerKernels string `json:"eager_kernels,omitempty"`
	// HostBound reports whether the GPU waits for the host to launch its kernels.
	HostBound        bool     `json:"host_bound,omitempty"`
	SamplesPerSecond float64  `json:"samples_per_second,omitempty"`
	Epoch            *Seconds `json:"epoch,omitempty"`
	Epochs           float64  `json:"epochs,omitempty"`
	Total            *Seconds `json:"total,omitempty"`
	// Cost is the price of Total on all GPUs that train together; absent if the time or the price is not known.
	Cost *Cost `json:"cost,omitempty"`
	// Workspaces counts the convolutions whose workspace cuDNN answered; absent if it was not queried about the model.
	Workspaces *Workspaces `json:"convolution_workspaces,omitempty"`
}

// Sheets returns the tables of the report, for [Document].
func (t *Times) Sheets() []Sheet {
	priced := t.Price > 0 || len(t.Prices) > 0
	columns := "gpu | memory>-2 | stage | batch> | needs> | step> | samples/s ~> | epoch>" + phrase.If(priced, "-3") +
		" | training>" + phrase.If(priced, " | cost>")
	s := Sheet{Title: t.Case.String(), Columns: Columns(columns)}
	var answers workspaceCounts
	var waiting []string
	for _, r := range t.Rows {
		d, _ := find(t.Devices, r.Device)
		answers.add(r.Batch, r.Workspaces)
		if r.HostBound {
			waiting = lists.Union(waiting, d.GPU)
		}
		if r.Stage == "all" && r.Batch == 0 && r.Total != nil {
			s.Row(d.GPU, "", "all")
			s.set("training", r.Total.String())
		} else {
			s.Row(d.GPU, d.Memory, r.Stage, r.cells())
		}
		if priced {
			s.set("cost", r.Cost.String())
		}
	}
	s.Notes.Add("estimated time on the GPU alone, without data loading, validation, logging and saving checkpoints. %s",
		t.source())
	s.Notes.If(t.Price > 0 && len(t.Devices) > 1+len(t.Prices), "cost: at one price for all GPUs; give each its own: "+
		"--price %s=0.35/h,%s=2.50/h.", t.Devices[0].GPU, t.Devices[len(t.Devices)-1].GPU)
	s.Notes.If(priced && t.Case.GPUs > 1, "cost: of all %d GPUs.", t.Case.GPUs)
	s.Notes.If(len(waiting) > 0, "held up by the host, which launches kernels more slowly than the GPU runs them: "+
		"%s; a larger batch or torch.compile costs little there.", strings.Join(waiting, ", "))
	s.Notes.If(t.Case.Strategy != nil, "%d GPUs train %d batches of that size at a time; communication runs at "+
		"the share of the links' speed that collectives reach (docs/time.md), overlapped with kernels that do not "+
		"wait for it.", t.Case.GPUs, t.Case.ParallelBatches())
	s.Notes = slices.Concat(s.Notes, answers.notes(),
		loopNamesOf(lists.Map(t.Rows, func(r TimeRow) models.Loop { return r.Loop })), t.unsafe())
	for _, why := range lists.Union(nil, lists.Map(t.Rows, func(r TimeRow) string { return r.Refused })...) {
		s.Notes.If(why != "", "refused: %s", why)
	}
	for _, why := range lists.Union(nil, lists.Map(t.Rows, func(r TimeRow) string { return r.EagerKernels })...) {
		s.Notes.If(why != "", "torch-compile: timed are the kernels of the eager step, since Inductor's fused ones "+
			"are unknown (%s). The interval begins at the time of products, convolutions and attention alone.", why)
	}
	s.Notes.If(t.Dataset == 0,
		"give --dataset-size N and --epochs N for the time of an epoch and of the whole training.")
	return []Sheet{s}
}

// SetPrices sets the price of a GPU-hour, by the GPU's name or one for all, and the cost of training for each row.
func (t *Times) SetPrices(all float64, each map[string]float64) {
	t.Price, t.Prices = all, each
	for i := range t.Rows {
		r := &t.Rows[i]
		d, _ := find(t.Devices, r.Device)
		perSecond := cmp.Or(each[d.GPU], all) / 3600 * float64(max(1, t.Case.GPUs))
		if r.Total != nil && perSecond > 0 {
			r.Cost = &Cost{perSecond * r.Total.Seconds, perSecond * r.Total.Low, perSecond * r.Total.High}
		}
	}
}

// String formats the amount with its range; "-" if it is not known.
func (c *Cost) String() string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f [%.2f, %.2f]", c.Amount, c.Low, c.High)
}

// unsafe returns a note for each batch that is not safe.
func (t *Times) unsafe() (notes phrase.List) {
	for _, r := range t.Rows {
		if r.Decides != nil {
			d, _ := find(t.Devices, r.Device)
			notes.Add("!: not safe on %s: %v; the time assumes that it trains.", d.GPU, r.Decides)
		}
	}
	return notes
}

// source names the sources of the efficiencies: of kernels, and of the host if it has its own.
func (t *Times) source() (text string) {
	for _, c := range t.Coefficients {
		switch {
		case text == "":
			text = "speed of kernels: " + c.Source + "."
		case c.Name == "speed:dispatch" && c.Source != t.Coefficients[0].Source:
			text += " host: " + c.Source + "."
		}
	}
	return text
}

func (r TimeRow) cells() []string {
	switch {
	case r.Refused != "":
		return []string{"refused"}
	case r.Batch == 0:
		return []string{"none fits"}
	}
	batch, speed := strconv.Itoa(r.Batch)+phrase.If(r.Unsafe != "", " !"), "-"
	if r.SamplesPerSecond > 0 {
		speed = formatThreeDigits(r.SamplesPerSecond)
	}
	return []string{batch, bytesize.Format(r.Memory), r.Step.String(), speed, r.Epoch.String(), r.Total.String()}
}

// String formats the time with its range, in a suitable unit.
func (s *Seconds) String() string {
	if s == nil {
		return "-"
	}
	unit, per := timeUnit(s.Seconds)
	return fmt.Sprintf("%s [%s, %s] %s", formatThreeDigits(s.Seconds/per), formatThreeDigits(s.Low/per),
		formatThreeDigits(s.High/per), unit)
}

func timeUnit(seconds float64) (string, float64) {
	for _, u := range []struct {
		name    string
		seconds float64
	}{{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}} {
		if seconds >= 1.5*u.seconds || u.name == "s" && seconds >= 1 {
			return u.name, u.seconds
		}
	}
	return "ms", 1e-3
}

// Data returns the values that JSON files hold, for [Document].
func (t *Times) Data() Data {
	rows := make([][]any, len(t.Rows))
	for i, r := range t.Rows {
		rows[i] = []any{r}
		if r.Step == nil {
			rows[i] = append(rows[i], extraValues{"roofline_seconds": "", "samples_per_second": ""})
		}
	}
	lines := jsonLines(*t, func(t *Times) *[]TimeRow { return &t.Rows })
	return Data{lines, Rows(`model=case_model device stage batch fits device_bytes
		step_seconds step_low_seconds step_high_seconds roofline_seconds samples_per_second
		epoch_seconds epochs total_seconds cost_amount cost_low cost_high
		gpus strategy rank`, rows, t, t.Case.textValues())}
}
