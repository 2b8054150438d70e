package report

import (
	"fmt"
	"strings"
)

// waterfalls are tables of what each lever saves, of what is recommended.
func (f *Fit) waterfalls() []Sheet {
	var sheets []Sheet
	for _, c := range f.Choices {
		if c.Recommended && len(c.Waterfall) > 0 {
			sheets = append(sheets, f.waterfall(c))
		}
	}
	return sheets
}

// waterfall has a row for each lever, in the order in which they are turned.
func (f *Fit) waterfall(c Choice) Sheet {
	most := int64(1)
	for _, l := range c.Waterfall {
		most = max(most, l.Device)
	}
	unit := columnOf(most)
	s := Sheet{
		Title: fmt.Sprintf("What each lever saves at batch %d on %s", c.Batch, f.deviceTitle(c.Device)),
		Columns: []Column{
			{Head: "lever"},
			{Head: unit.head("saves"), Right: true},
			{Head: unit.head("needs"), Right: true},
			{Head: "samples/s ~", Right: true},
			{Head: ""},
		},
	}
	for i, l := range c.Waterfall {
		name, saves := l.Name, unit.signed(l.Saves)
		if i == 0 {
			name, saves = "without", ""
		}
		s.Rows = append(s.Rows, []string{
			name, saves, unit.scale.Format(l.Device), rate(l.SamplesPerSecond),
			strings.Repeat("█", waterfallCells(l.Device, most)),
		})
	}
	s.Notes = []string{c.explanation(f.memory(c.Device))}
	return s
}

// signed is a number of bytes that may be negative.
func (c column) signed(bytes int64) string {
	if bytes < 0 {
		return "-" + c.scale.Format(-bytes)
	}
	return c.scale.Format(bytes)
}

// waterfallCells is how long the bar of a need is.
func waterfallCells(bytes, most int64) int {
	const width = 30
	return int((bytes*width + most/2) / most)
}

// explanation says in a line how the levers of a choice bring it into the memory of
// its device.
func (c Choice) explanation(memory int64) string {
	unit := columnOf(memory)
	words := []string{fmt.Sprintf("batch %d needs %s of %s %s", c.Batch, unit.scale.Format(c.Waterfall[0].Device),
		unit.scale.Format(memory), unit.scale.Unit())}
	for _, l := range c.Waterfall[1:] {
		words = append(words, fmt.Sprintf("%s saves %s", l.Name, unit.signed(l.Saves)))
	}
	last := c.Waterfall[len(c.Waterfall)-1]
	return strings.Join(words, "; ") + fmt.Sprintf("; that leaves %s.", unit.scale.Format(last.Device))
}

// deviceTitle is how people call a device of the result.
func (f *Fit) deviceTitle(name string) string {
	for _, d := range f.Devices {
		if d.Name == name {
			return d.String()
		}
	}
	return name
}
