package compare

import (
	"strconv"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
)

// Price is how many bytes the device holds when a case is trained with a batch size on a board of
// the catalog.
type Price func(c models.Case, batch int, gpu string) (int64, error)

// oneModel reports whether each side is one step, and both are of the same model.
func oneModel(as, bs []Amounts) bool {
	return len(as) == 1 && len(bs) == 1 && as[0].Case.Model != "" && as[0].Case.Model == bs[0].Case.Model
}

// changes are what makes one step the other, one after another: fields of the case, the batch size
// and the board. Each costs what the device holds more once it is made beside those before it.
// After the first change whose cost cannot be simulated none is given, since it would include that change's.
func changes(a, b Amounts, price Price) []report.Change {
	type state struct {
		c     models.Case
		batch int
		gpu   string
	}
	at := state{a.Case, a.Batch, a.GPU}
	var all []report.Change
	before, err := price(at.c, at.batch, at.gpu)
	add := func(to state, about, from, now string) {
		change := report.Change{Field: about, A: from, B: now}
		after := int64(0)
		if err == nil {
			after, err = price(to.c, to.batch, to.gpu)
		}
		if err == nil {
			cost := after - before
			change.Device, before = &cost, after
		}
		all, at = append(all, change), to
	}
	for _, d := range models.Differences(a.Case, b.Case) {
		add(state{d.Case, at.batch, at.gpu}, d.About, d.A, d.B)
	}
	if a.Batch != b.Batch {
		add(state{at.c, b.Batch, at.gpu}, "batch", strconv.Itoa(a.Batch), strconv.Itoa(b.Batch))
	}
	if a.GPU != b.GPU {
		add(state{at.c, at.batch, b.GPU}, "board", a.GPU, b.GPU)
	}
	return all
}
