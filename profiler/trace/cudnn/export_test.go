package cudnn

import (
	"fmt"
	"io/fs"
)

// Explainer is Explain with other rules.
type Explainer func(Config, Direction, Board) Plan

// ReadRules reads the rules of all architectures in a directory.
func ReadRules(files fs.FS, dir string) (Explainer, error) {
	all := map[int]*rules{}
	for _, g := range generations {
		r, err := readRules(files, fmt.Sprintf("%s/sm%d.gz", dir, g))
		if err != nil {
			return nil, err
		}
		all[g] = r
	}
	return func(c Config, d Direction, b Board) Plan {
		return all[generation(b.Capability)].explain(c, d, &b)
	}, nil
}
