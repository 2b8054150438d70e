package cudnn

import (
	"fmt"
	"strings"
)

// Choice is an engine class with its knobs.
type Choice struct {
	// Engine is the class.
	Engine Engine
	// TileM and TileN are the sides of the kernel's tile where the workspace
	// depends on them, else zero.
	TileM, TileN int64
	// Splits is how often the reduction is split, zero for most.
	Splits int64
}

// String writes a choice as the rules do: "copies", "copies*12" for twelve
// results in fp32, "copies/64x128*3" for three of each tile.
func (c Choice) String() string {
	s := c.Engine.String()
	if c.TileM > 0 {
		s += fmt.Sprintf("/%dx%d", c.TileM, c.TileN)
	}
	if c.Splits > 0 {
		s += fmt.Sprintf("*%d", c.Splits)
	}
	return s
}

// parseChoice reads what String writes.
func parseChoice(s string) (Choice, error) {
	var c Choice
	name, knobs := s, ""
	if i := strings.IndexAny(s, "/*"); i >= 0 {
		name, knobs = s[:i], s[i:]
	}
	e, err := engineNamed(name)
	if err != nil {
		return c, err
	}
	c.Engine = e
	switch {
	case knobs == "":
	case knobs[0] == '*':
		_, err = fmt.Sscanf(knobs, "*%d", &c.Splits)
	case strings.Contains(knobs, "*"):
		_, err = fmt.Sscanf(knobs, "/%dx%d*%d", &c.TileM, &c.TileN, &c.Splits)
	default:
		_, err = fmt.Sscanf(knobs, "/%dx%d", &c.TileM, &c.TileN)
	}
	if err == nil && (c.String() != s || min(c.TileM, c.TileN, c.Splits) < 0 || c.TileN == 0 && c.TileM > 0) {
		err = fmt.Errorf("want engine/MxN*splits")
	}
	if err != nil {
		return c, fmt.Errorf("choice %q: %w", s, err)
	}
	return c, nil
}
