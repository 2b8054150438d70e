package report

import "slices"

// Several are reports that are written as one: a table after the other, and in
// CSV with the columns of all.
type Several []*Report

// Sheets implements [Document].
func (s Several) Sheets() []Sheet {
	var all []Sheet
	for _, r := range s {
		all = append(all, r.Sheets()...)
	}
	return all
}

// Lines implements [Document].
func (s Several) Lines() []any {
	var all []any
	for _, r := range s {
		all = append(all, r.Lines()...)
	}
	return all
}

// Records implements [Document]. Cells of columns that a report does not have
// are empty.
func (s Several) Records() [][]string {
	var head []string
	for _, r := range s {
		for _, name := range r.Records()[0] {
			if !slices.Contains(head, name) {
				head = append(head, name)
			}
		}
	}
	all := [][]string{head}
	for _, r := range s {
		records := r.Records()
		for _, row := range records[1:] {
			wide := make([]string, len(head))
			for i, cell := range row {
				wide[slices.Index(head, records[0][i])] = cell
			}
			all = append(all, wide)
		}
	}
	return all
}
