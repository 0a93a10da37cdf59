"""What is run beside the package, from the root of the repository; not in the wheel."""
