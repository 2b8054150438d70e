package forest

// Trees is the number of trees.
func (f *Forest) Trees() int { return len(f.trees) }
