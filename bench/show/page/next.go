package page

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/internal/shellword"
	"github.com/vprof/vprof/models"
)

// nextSteps returns advice by the result on the first device, and a command that follows it.
func (p *Page) nextSteps() (todo []string, command string) {
	all := p.series()
	s := all[0]
	if script := p.Runs[0].Script; script != nil {
		return []string{"The largest batch of this command, with {batch} in the place of its batch size:"},
			"vprof fit --gpu " + s.device.GPU + " -- " +
				batchOption.ReplaceAllString(shellword.Join(script.Command), "${1}{batch}")
	}
	safe := lists.Filter(s.points, func(q report.Point) bool { return q.Estimate == nil || q.Estimate.Unsafe == "" })
	if best, ok := lists.Largest(safe, report.Point.FittingBatch); ok {
		todo = append(todo, fmt.Sprintf("Largest safe batch of those shown%s: %d.",
			phrase.If(len(all) > 1, " on the %s", s.device.Title), best.Batch))
	} else {
		todo = append(todo,
			"None of the batch sizes shown is safe: try a smaller one, gradient checkpointing or a half precision.")
	}
	remedied := lists.Filter(s.points, func(q report.Point) bool {
		return q.Expandable != nil && q.ExpandableUnsafe == ""
	})
	if n := len(remedied); n > 0 {
		q := remedied[n-1]
		todo = append(todo,
			fmt.Sprintf("Cheapest remedy: "+report.AllocConf+"%s; batch %d then needs %s of the device's %s.",
				report.ExpandableSegments, q.Batch, bytesize.Format(q.Expandable.Bytes),
				bytesize.Format(s.device.Memory)))
	}
	return append(todo, "The largest batch that leaves a margin, over precision and checkpointing:"),
		fitCommand(p.Runs[0].Case, s.device)
}

// batchOption matches an option of a script that sets the batch size, with its value.
var batchOption = regexp.MustCompile(`( --?(?:[-\w]*batch[-_]size|batch|bs)[ =])\S+`)

// fitCommand returns the vprof fit command that searches the largest batch of a case.
func fitCommand(c report.Case, d report.Device) string {
	words := []string{"vprof", "fit", "--model", c.Model, "--gpu", d.GPU}
	if c.ConfigHash != "" {
		words[3] = "FILE" // what it was made of has a name that the run does not keep
	}
	for _, f := range models.Fields() {
		text := f.Text(c.Case)
		switch {
		case f.JSON == "settings", slices.Contains([]string{"", "amp", "checkpointing"}, f.Name):
		case text == "", text == "1" && f.Name == "accumulate", text == "fp32" && f.Name == "weights":
		default:
			words = append(words, lists.Map(f.FlagArgs(text), shellword.Quote)...)
		}
	}
	for _, word := range c.Settings.Assignments() {
		words = append(words, "--set", word)
	}
	return strings.Join(words, " ")
}
