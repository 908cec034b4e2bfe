"""Does a pair fit a slice of TPUs, and what will it bring there?"""
