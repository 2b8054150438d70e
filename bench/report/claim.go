package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
)

// Claim is an estimate from a project's own guide.
type Claim struct {
	// Guide is the guide's title, Project its project, Where the section.
	Guide   string `json:"guide"`
	Project string `json:"project"`
	Where   string `json:"where"`
	// Quantity is the quantity: "device", "allocated", "weights".
	Quantity string `json:"of"`
	// Quote is the estimate as the guide writes it.
	Quote string `json:"says"`
	// IsDoubted reports whether the guide expects that the batch does not fit.
	IsDoubted bool `json:"doubted,omitempty"`
	// Bytes or Share is the estimated range; a claim that a batch fits has neither.
	Bytes *ByteRange  `json:"bytes,omitempty"`
	Share *ShareRange `json:"share,omitempty"`
	// Seconds is a time, with its limits.
	Seconds *Seconds `json:"seconds,omitempty"`
	// Batch is a batch size or a range, Conditions the other conditions of the guide, and Baseline the configuration
	// that a saving is relative to; absent if the guide names none.
	Batch      string `json:"batch,omitempty"`
	Conditions string `json:"conditions,omitempty"`
	Baseline   string `json:"than,omitempty"`
	// Note is a remark for the reader.
	Note string `json:"note,omitempty"`
	// Answer is vprof's estimate for the same conditions; absent if the claim is part of an estimate.
	Answer *Answer `json:"vprof,omitempty"`
}

// ByteRange are amounts of memory.
type ByteRange struct {
	Low  int64 `json:"low_bytes"`
	High int64 `json:"high_bytes"`
}

// ShareRange are shares of something.
type ShareRange struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Answer is vprof's own estimate for a claim: a range over the batch sizes and stages that the claim leaves open.
type Answer struct {
	// GPU is the GPU that the estimate is for.
	GPU   string      `json:"gpu"`
	Bytes *ByteRange  `json:"bytes,omitempty"`
	Share *ShareRange `json:"share,omitempty"`
	// Seconds is a time with its interval, over all batch sizes and stages.
	Seconds *Seconds `json:"seconds,omitempty"`
	// Verdict answers a claim that a batch fits.
	Verdict Verdict `json:"verdict,omitempty" jsonschema:"enum=fits,enum=tight,enum=fits slowly,enum=does not fit"`
	// Refused is the reason why there is no answer.
	Refused string `json:"refused,omitempty"`
}

// AddValue widens the range to include a value, which is a share or bytes.
func (a *Answer) AddValue(value float64, share bool) {
	if share {
		if a.Share == nil {
			a.Share = &ShareRange{value, value}
		}
		a.Share.Low, a.Share.High = min(a.Share.Low, value), max(a.Share.High, value)
		return
	}
	bytes := int64(value)
	if a.Bytes == nil {
		a.Bytes = &ByteRange{bytes, bytes}
	}
	a.Bytes.Low, a.Bytes.High = min(a.Bytes.Low, bytes), max(a.Bytes.High, bytes)
}

// AddTime widens the range to include a time.
func (a *Answer) AddTime(s Seconds) {
	if a.Seconds == nil {
		a.Seconds = &s
		return
	}
	a.Seconds.Seconds = max(a.Seconds.Seconds, s.Seconds)
	a.Seconds.Low, a.Seconds.High = min(a.Seconds.Low, s.Low), max(a.Seconds.High, s.High)
}

// AddVerdict adds the verdict on one of the answer's cases; the worst is kept.
func (a *Answer) AddVerdict(v Verdict) {
	a.Verdict = a.Verdict.Worse(v)
}

// Source returns the place of the claim in the guide.
func (c Claim) Source() string { return fmt.Sprintf("%s (%s), %s", c.Guide, c.Project, c.Where) }

// String returns the range in a few words.
func (r ByteRange) String() string {
	low, high := bytesize.Format(r.Low), bytesize.Format(r.High)
	if low == high {
		return low
	}
	number, unit, _ := strings.Cut(low, " ")
	if strings.HasSuffix(high, " "+unit) {
		low = number
	}
	return low + " to " + high
}

// String returns the range in percent.
func (r ShareRange) String() string {
	low, high := percentagePoints(r.Low), percentagePoints(r.High)
	if low == high {
		return low
	}
	return strings.TrimSuffix(low, " %") + " to " + high
}

// percentagePoints formats a share in whole percent.
func percentagePoints(x float64) string { return fmt.Sprintf("%d %%", int(math.Round(100*x))) }

// The error with which a guide's rounded value still counts as right: a tenth of an amount, or five points of a share.
const (
	amountTolerance = 0.1
	shareTolerance  = 0.05
)

// Judge compares the guide's estimate with the answer: "right", "3.1× too high", "does not fit". It returns a dash if
// there is nothing to compare.
func (c Claim) Judge() string {
	a := c.Answer
	switch {
	case a == nil || a.Refused != "":
		return "-"
	case c.IsDoubted && a.Verdict == Fits:
		return "too careful"
	case c.IsDoubted && a.Verdict == DoesNotFit:
		return "right"
	case a.Verdict != "":
		return map[Verdict]string{
			Fits: "right", Tight: "tight", Slow: "slow", Unrecorded: "not recorded",
			DoesNotFit: "wrong",
		}[a.Verdict]
	case c.Seconds != nil && a.Seconds != nil:
		return judgeTimes(*c.Seconds, *a.Seconds)
	case c.Share != nil && a.Share != nil:
		return judgeShares(*c.Share, *a.Share)
	case c.Bytes != nil && a.Bytes != nil:
		return judgeBytes(*c.Bytes, *a.Bytes)
	}
	return "-"
}

// judgeBytes compares amounts. If vprof's answer is a range, the guide must be right for all of it; too low matters
// more than too high.
func judgeBytes(guide, truth ByteRange) string {
	low, high := float64(truth.Low), float64(truth.High)
	least, most := float64(guide.Low), float64(guide.High)
	switch {
	case least > high*(1+amountTolerance) && high <= 0:
		return "too high"
	case least > high*(1+amountTolerance):
		return rangeText(least/high, least/low) + " too high"
	case most*(1+amountTolerance) < low:
		return rangeText(low/most, high/most) + " too low"
	case most*(1+amountTolerance) < high:
		return "up to " + timesText(high/most) + " too low"
	case least > low*(1+amountTolerance) && low <= 0:
		return "partly too high"
	case least > low*(1+amountTolerance):
		return "up to " + timesText(least/low) + " too high"
	}
	return "right"
}

// judgeTimes compares times: a guide is right if its whole range is within the interval. The guide's times include
// loading and logging, which vprof's do not.
func judgeTimes(guide, truth Seconds) string {
	switch {
	case guide.High < truth.Low:
		return "outside: " + timesText(truth.Low/guide.High) + " too short"
	case guide.Low > truth.High:
		return "outside: " + timesText(guide.Low/truth.High) + " too long"
	case guide.Low < truth.Low || guide.High > truth.High:
		return "partly outside"
	}
	return "right"
}

func judgeShares(guide, truth ShareRange) string {
	switch {
	case guide.Low > truth.High+shareTolerance:
		return "too high"
	case guide.High < truth.Low-shareTolerance:
		return "too low"
	case guide.Low > truth.Low+shareTolerance:
		return "partly too high"
	case guide.High < truth.High-shareTolerance:
		return "partly too low"
	}
	return "right"
}

// rangeText formats a range of factors, or one factor if both ends look the same.
func rangeText(least, most float64) string {
	from, to := timesText(least), timesText(most)
	if from == to || math.IsInf(most, 0) {
		return from
	}
	return strings.TrimSuffix(from, "×") + " to " + to
}

// timesText formats a factor with two digits, and with three next to 1.
func timesText(x float64) string {
	switch {
	case x > 1 && x < 1.05:
		return fmt.Sprintf("%.2f×", x)
	case x < 10:
		return fmt.Sprintf("%.1f×", x)
	}
	return fmt.Sprintf("%.0f×", x)
}

// cell formats the answer as a cell of a table.
func (a *Answer) cell() string {
	switch {
	case a == nil:
		return "-"
	case a.Refused != "":
		return "refused"
	case a.Verdict != "" && a.Bytes != nil:
		return string(a.Verdict) + ": " + a.Bytes.String()
	case a.Seconds != nil:
		return a.Seconds.String()
	case a.Share != nil:
		return a.Share.String()
	case a.Bytes != nil:
		return a.Bytes.String()
	}
	return "-"
}

// ClaimSheets returns a table for each guide: its estimates and vprof's.
func ClaimSheets(claims []Claim) []Sheet {
	var sheets []Sheet
	var last string
	for _, c := range claims {
		title := fmt.Sprintf("Estimates of the guide: %s (%s)", c.Guide, c.Project)
		if title != last {
			last = title
			columns := Columns("section | quantity | batch> | conditions | guide> | vprof> | the guide is> | ")
			sheets = append(sheets, Sheet{Title: title, Columns: columns})
		}
		s := &sheets[len(sheets)-1]
		of, conditions := strings.ReplaceAll(c.Quantity, "board", "GPU"), c.Conditions // the quantity's name in files
		if c.Baseline != "" {
			of = "saving of " + of
			conditions = strings.TrimPrefix(conditions+" instead of "+c.Baseline, " ")
		}
		s.Row(c.Where, of, c.Batch, conditions, c.Quote, c.Answer.cell(), c.Judge(), c.Note)
		if c.Answer != nil && c.Answer.Refused != "" {
			s.Notes = append(s.Notes, fmt.Sprintf("%s, %s: refused: %s", c.Where, of, c.Answer.Refused))
		}
	}
	for i := range sheets {
		sheets[i].Notes = append(sheets[i].Notes, "The guide's MB and GB mean 1024² and 1024³ bytes. vprof's values "+
			"are estimates for the same conditions; a range covers the batch sizes and stages left open.")
	}
	return sheets
}

// claim formats the guide's estimate for the point as a cell: of several estimates, the one with the most conditions.
func (p Point) claim(c byteColumn) string {
	if len(p.Claims) == 0 || p.Claims[0].Bytes == nil {
		return "-"
	}
	b, high := p.Claims[0].Bytes, c.amount(p.Claims[0].Bytes.High)
	low := c.amount(b.Low)
	if strings.HasPrefix(p.Claims[0].Quote, "≥") {
		low = "≥ " + low
	}
	switch b.Low {
	case b.High:
		return low
	case 0: // "4 GiB or less"
		return "≤ " + high
	}
	return low + "–" + high
}

// claimNote returns the source of the guide's estimates.
func (r *Report) claimNote() string {
	var shown []Claim
	for _, p := range r.Points {
		shown = append(shown, p.Claims[:min(1, len(p.Claims))]...)
	}
	if len(shown) == 0 {
		return ""
	}
	sources := lists.Union(nil, lists.Map(shown, func(c Claim) string { return c.Where })...)
	return fmt.Sprintf("guide: estimates of %q of %s: %s.", shown[0].Guide, shown[0].Project,
		strings.Join(sources, "; "))
}
